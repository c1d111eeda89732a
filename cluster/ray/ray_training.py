"""A training on several workers of a Ray cluster, by Ray Train: each runs the trainer, and `train/loop/data_parallel` makes them one.

Ray Train places the workers, joins their processes in a group of torch's, and ends all of them when one fails. It is given no checkpoint: the first worker
keeps progress in `--out` as a training without Ray does, so that either goes on with the other's.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from contextlib import ExitStack, redirect_stderr, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from outrider.actors.train.choice.trainer_registry import TRAINERS
from outrider.actors.train.loop.result_folder import check_folder
from outrider.actors.train.trainer_options import TargetTrainerOptions
from outrider.actors.train.trainer_spec import TrainResult
from outrider.actors.train.training_errors import TrainError, TrainingFailed
from outrider.cluster.process.signals import handlers_kept, held_back
from outrider.cluster.ray.ray_errors import first_line

WAIT_S = 1800
"""Bound on the wait of workers for one another: for a chunk of the target's writing, or what is measured between stages."""

FOLDER = "ray"
"""Of Ray Train's own files, in `progress`; removed in the end."""

SAID = "said.log"
"""What the first worker says on the way. Not named as texts are: the folder may lie among those that are trained on."""

POLL_S = 0.5
"""How often that is read."""

LOST = "closed by peer"
"""In what workers say that waited for one that has died."""

INSTALL = "pip install 'outrider[serve,train]'"


def train_on_ray(name: str, options: TargetTrainerOptions) -> TrainResult:
    """Runs a trainer on as many workers as its options say. Blocks; interrupted, it ends them.

    Args:
        name: Of the trainer.
        options: Its options.

    Raises:
        TrainError: There is no cluster, no room for the folder of the result, or a worker refuses the options.
        TrainingFailed: The cluster cannot be joined or is too small, or a worker failed.
    """
    try:
        import ray
        import ray.train.torch
    except ImportError as error:
        raise TrainingFailed(
            f"--workers needs Ray Train ({first_line(error)}): {INSTALL}"
        ) from error
    check_folder(options.out)
    # Its public names are those of either of two versions, and mypy knows the older one.
    api: Any = ray.train
    is_ours = _connect()
    folder = (options.out / "progress" / FOLDER).absolute()
    try:
        use_gpu = _find_room(options)
        # What a run that was killed has left.
        shutil.rmtree(folder, ignore_errors=True)
        trainer = api.torch.TorchTrainer(
            _work,
            train_loop_config={
                "name": name,
                "options": replace(
                    options,
                    data=options.data.absolute(),
                    out=options.out.absolute(),
                    device="cuda" if use_gpu else "cpu",
                ),
                "cwd": os.getcwd(),
                "said": folder / SAID,
            },
            torch_config=api.torch.TorchConfig(
                backend="cpu:gloo,cuda:nccl" if use_gpu else "gloo", timeout_s=WAIT_S
            ),
            scaling_config=api.ScalingConfig(
                num_workers=options.workers,
                use_gpu=use_gpu,
                resources_per_worker=_needs(options, use_gpu=use_gpu),
            ),
            run_config=api.RunConfig(
                name=FOLDER,
                storage_path=str(folder.parent),
                failure_config=api.FailureConfig(
                    max_failures=0, controller_failure_limit=0, max_preemption_failures=0
                ),
                logging_config=api.LoggingConfig(log_level="ERROR"),
            ),
        )
        result = _fitted(trainer, folder / SAID).return_value
        assert isinstance(result, TrainResult), "the first worker's"
        return result
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if is_ours:
            ray.shutdown()


def _connect() -> bool:
    """Joins the cluster at RAY_ADDRESS, unless this process is in one; starts none, and looks for none. Whether it did."""
    import ray

    if ray.is_initialized():
        return False
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        raise TrainError(
            "--workers needs a Ray cluster: submit the command as a Ray job, or set RAY_ADDRESS"
        )
    try:
        # Ray takes SIGTERM for itself, and then aborts with a page of addresses.
        with held_back(), handlers_kept():
            ray.init(
                address=address,
                logging_level=logging.ERROR,
                log_to_driver=False,
                # A helper of Ray Train's looks for any Ray of the machine without it.
                runtime_env={"env_vars": {"RAY_ADDRESS": address}},
            )
    except (OSError, RuntimeError, ValueError) as error:
        raise TrainingFailed(
            f"the Ray cluster at {address} cannot be joined: {first_line(error)}"
        ) from error
    return True


def _needs(options: TargetTrainerOptions, *, use_gpu: bool) -> dict[str, float]:
    """Of a worker."""
    return {"CPU": float(options.threads or 1), **({"GPU": 1.0} if use_gpu else {})}


def _find_room(options: TargetTrainerOptions) -> bool:
    """Whether workers get a GPU each: with `cuda`, and with `auto` if there are enough. Raises TrainingFailed where there is no room for them at all."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]

    def room(*, use_gpu: bool) -> int:
        needs = _needs(options, use_gpu=use_gpu)
        return sum(
            int(min(node.get(kind, 0.0) // amount for kind, amount in needs.items()))
            for node in nodes
        )

    use_gpu = options.device == "cuda" or (
        options.device == "auto" and room(use_gpu=True) >= options.workers
    )
    if (most := room(use_gpu=use_gpu)) < options.workers:
        each = ", ".join(
            f"{kind} {amount:g}" for kind, amount in _needs(options, use_gpu=use_gpu).items()
        )
        raise TrainingFailed(
            f"workers is {options.workers}; the Ray cluster has room for {most} that need {each} each (--threads, --device)"
        )
    return use_gpu


def _fitted(trainer: Any, said: Path) -> Any:
    """What Ray Train gives; what the first worker says on the way is said here. In a thread: in the main one it would take Ctrl-C for itself, and end this process as if nothing had happened."""
    import ray

    outcome: list[Any] = []

    def fit() -> None:
        try:
            outcome.append(trainer.fit())
        except BaseException as error:  # noqa: BLE001 - it is raised where the thread is waited for
            outcome.append(error)

    thread = threading.Thread(target=fit, name="ray-train", daemon=True)
    thread.start()
    shown = 0
    try:
        while True:
            thread.join(POLL_S)
            is_done = not thread.is_alive()
            text = said.read_text(encoding="utf-8", errors="replace") if said.exists() else ""
            print(text[shown:], end="", file=sys.stderr, flush=True)
            shown = len(text)
            if is_done:
                break
    except KeyboardInterrupt:
        # Ends the job, and with it its workers.
        ray.shutdown()
        raise
    (result,) = outcome
    if isinstance(result, Exception):
        own = (one for one in _failures(result).values() if isinstance(one, TrainError))
        kind = next(map(type, own), TrainingFailed)
        raise kind(explained(result)) from result
    if isinstance(result, BaseException):
        raise result
    return result


def explained(error: Exception) -> str:
    """What to tell of a run that failed: a trainer's own error as it is; else that of a worker that died, before those that waited for it."""
    from ray.exceptions import RayActorError

    failures = _failures(error)
    for failure in failures.values():
        if isinstance(failure, TrainError):
            return str(failure)
    died = [rank for rank, failure in failures.items() if isinstance(failure, RayActorError)]
    if not failures:
        what = f"Ray Train: {first_line(getattr(error, 'controller_failure', error))}"
    elif died or all(LOST in str(failure) for failure in failures.values()):
        which = f"worker {died[0]}" if died else "a worker"
        what = f"{which} has died; it may have been killed for its memory"
    else:
        rank, failure = min(
            (rank, failure) for rank, failure in failures.items() if LOST not in str(failure)
        )
        what = f"worker {rank} failed: {type(failure).__name__}: {first_line(failure)}"
    return f"{what}; the same command goes on from here"


def _failures(error: Exception) -> dict[int, Exception]:
    """What workers have failed of, by rank."""
    failures: dict[int, Exception] = getattr(error, "worker_failures", {})
    return dict(sorted(failures.items()))


def _work(config: dict[str, Any]) -> TrainResult:
    """The trainer, in a worker."""
    from outrider.actors.train.loop.data_parallel import TorchWorkers, among

    # Ray Train goes elsewhere. A target may be a folder beside the command, or in the working directory of a job.
    with suppress(OSError):
        os.chdir(config["cwd"])
    with ExitStack() as around:
        workers = TorchWorkers()
        around.enter_context(among(workers))
        if workers.rank == 0:
            said = around.enter_context(config["said"].open("a", buffering=1, encoding="utf-8"))
            around.enter_context(redirect_stderr(said))
        return TRAINERS[config["name"]].run(config["options"])
