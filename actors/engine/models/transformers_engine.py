"""Any decoder-only transformers causal language model behind the engine interface, unmodified.

One forward runs the rows of all sessions packed into one sequence: explicit positions, a cache of ours that writes the new rows
into slots (`pass_cache.py`), and an attention function of ours that reads them (`attention_hook.py`). The model
makes no mask. A row's keys and values depend on its ancestors only, so they stay valid wherever the row moves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import structlog
import torch
from transformers import PreTrainedConfig, PreTrainedModel

from outrider.actors.engine.attention.attention import Attend, UnsupportedModel
from outrider.actors.engine.attention.attention_hook import ATTENTION_NAME
from outrider.actors.engine.attention.pass_cache import PassCache
from outrider.actors.engine.attention.pass_layout import PassLayout, plan_pass
from outrider.actors.engine.attention.planned_attention import planned_attention, planned_cache
from outrider.actors.engine.checkpoint.model_facts import check_config, eos_token_ids, text_config
from outrider.actors.engine.checkpoint.room import room_for
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.graphs.cuda_graph import GraphRecorder, recorder_for
from outrider.actors.engine.graphs.recording_policy import Policy
from outrider.actors.engine.graphs.static_pass import StaticPasses
from outrider.actors.engine.kv.added_rows import packed
from outrider.actors.engine.kv.moved_rows import moved_rows
from outrider.actors.engine.kv.slots import SlotTable
from outrider.actors.engine.kv.storage import Storage, row_bytes
from outrider.actors.engine.models.llama_forward import MAX_ERROR, LlamaForward
from outrider.actors.engine.models.llama_weights import LlamaWeights, llama_weights
from outrider.actors.engine.models.module_forward import ModuleForward
from outrider.actors.engine.probe.load_probe import (
    ProbeTree,
    Reference,
    check_tree,
    probe_tree,
    reference_of,
)
from outrider.actors.engine.probe.probe_layers import record_demands
from outrider.actors.engine.protocol import Batch, Logits, ModelSpec, Moves, Rows
from outrider.actors.engine.staging import to_device
from outrider.actors.engine.tapped_states import TappedStates

_log = structlog.get_logger(__name__)


class TransformersEngine:
    """A transformers model with slots."""

    def __init__(
        self,
        model: PreTrainedModel,
        settings: EngineSettings,
        *,
        name: str,
        fingerprint: str,
    ):
        """Takes a loaded model over; it is of no other use from then on.

        Args:
            model: On its device, with its weights in their final type.
            settings: The room it gets, chosen where left open (`sizing.py`). `model`, `dtype` and `device` are not read.
            name: What errors call it.
            fingerprint: Digest of weights and configuration.

        Raises:
            UnsupportedModel: Tree attention over slots does not fit the model.
            ValueError: The settings ask for more than the model or the memory has.
        """
        model.train(False)
        self._model = model
        check_config(model.config, name=name)
        room = room_for(model.config, settings, model=model, device=model.device, name=name)
        with torch.inference_mode():
            vocab_size = text_config(model.config).vocab_size
            while True:
                max_context, max_scratch = room.max_context, settings.max_scratch
                tree = probe_tree(vocab_size, max_context=max_context, max_scratch=max_scratch)
                reference = reference_of(model, tree, name=name)
                demands = record_demands(model, name=name, max_context=max_context)
                shapes = [(each.keys, each.values) for each in demands]
                if (kept := row_bytes(shapes, model.dtype)) == room.row_bytes:
                    break
                # No configuration need say what the layers keep.
                room = room_for(
                    *(model.config, settings),
                    model=model,
                    device=model.device,
                    name=name,
                    row_bytes=kept,
                )
            self.room = room
            """Slots and context, what they take, and why so many."""
            num_slots = room.num_slots
            self._windows = [each.window for each in demands]
            self._spec = ModelSpec(
                name=name,
                vocab_size=reference.logits_NV.shape[-1],
                max_context=max_context,
                eos_token_ids=eos_token_ids(model),
                fingerprint=fingerprint,
                dtype=model.dtype,
                device=model.device,
                num_blocks=text_config(model.config).num_hidden_layers,
                width=text_config(model.config).hidden_size,
                is_recorded=settings.cuda_graphs != "off",
            )
            capacity = max_context + settings.max_scratch
            self._table = SlotTable(
                num_slots=num_slots,
                max_context=max_context,
                max_scratch=settings.max_scratch,
                vocab_size=vocab_size,
            )
            self.storage = Storage(
                shapes,
                num_slots=num_slots,
                capacity=capacity,
                dtype=model.dtype,
                device=model.device,
            )
            """Keys and values of all slots."""
            weights = llama_weights(model, self._windows) if settings.direct_forward else None
            self.llama = None
            """The model as functions of its weights; None: its modules are run."""
            if weights is not None:
                self.llama = LlamaForward(weights, max_context=max_context)
        self._reached = [0] * num_slots
        """Rows of each slot that were ever written since it was cleared."""
        self.static_passes: StaticPasses | None = None
        """Passes of fixed shapes; None: passes read views."""
        self._choose_passes(settings)
        self._modules = ModuleForward(model, self._windows)
        self._check(tree, reference)
        if self._spec.device.type == "cuda":
            self.record_usual()

    def _check(self, tree: ProbeTree, reference: Reference) -> None:
        """Compares with the reference; where the modules do something that the written-out forward does not, they are run."""
        if self.llama is not None:
            try:
                check_tree(self, tree, reference, limit=MAX_ERROR.get(self._spec.dtype))
            except UnsupportedModel as error:
                _log.warning("the modules of the model are run, not its weights", reason=str(error))
                self.llama = None
            else:
                return
        try:
            check_tree(self, tree, reference)
        except UnsupportedModel:
            if self._spec.dtype == torch.float32:
                raise
            # Rounding may have chosen another expert for a token that all nodes see; hardly so for other tokens again.
            self._look_again()

    @torch.inference_mode()
    def _look_again(self) -> None:
        """Compares another tree."""
        tree = probe_tree(
            text_config(self._model.config).vocab_size,
            max_context=self._spec.max_context,
            max_scratch=self.max_scratch,
            first_token=2,
        )
        reference = reference_of(self._model, tree, name=self._spec.name)
        self._model.set_attn_implementation(ATTENTION_NAME)
        check_tree(self, tree, reference)

    def _choose_passes(self, settings: EngineSettings) -> None:
        """Passes of a GPU, and of a CPU that is asked to take their way, have fixed shapes; others read views."""
        device, mode = self._spec.device, settings.cuda_graphs
        if device.type == "cpu" and mode != "on":
            return
        self.record_with(recorder_for(device), Policy.of(mode))

    def record_with(self, recorder: GraphRecorder, policy: Policy) -> StaticPasses:
        """Passes have fixed shapes from now on, none of which is recorded yet.

        Args:
            recorder: Records them.
            policy: Which, and when.
        """
        self.static_passes = StaticPasses(
            self._call,
            self.storage,
            recorder,
            windows=self._windows,
            max_scratch=self.max_scratch,
            policy=policy,
            weight_bytes=sum(each.nbytes for each in self._model.parameters()),
            vocab_size=self._spec.vocab_size,
            width=self._spec.width,
            dtype=self._model.dtype,
        )
        return self.static_passes

    @torch.inference_mode()
    def record_usual(self) -> None:
        """Records the shapes of usual passes, so that no request waits for it."""
        if self.static_passes is None:
            return
        slot = self.acquire()
        row = packed([Rows(slot=slot, tokens=[0], parents=[-1])])
        self.static_passes.prepare(plan_pass(row, self._table.check(row)))
        self.release(slot)

    @property
    def spec(self) -> ModelSpec:
        """See `Engine`."""
        return self._spec

    @property
    def weights(self) -> LlamaWeights | None:
        """The model's weights; None: its modules are run, for it is of another shape than these are for."""
        return None if self.llama is None else self.llama.weights

    @property
    def config(self) -> PreTrainedConfig:
        """The checkpoint's, as transformers reads it."""
        return self._model.config

    @property
    def num_slots(self) -> int:
        """See `Engine`."""
        return self._table.num_slots

    @property
    def num_free(self) -> int:
        """See `Engine`."""
        return self._table.num_free

    @property
    def max_scratch(self) -> int:
        """See `Engine`."""
        return self._table.max_scratch

    def acquire(self, slot: int | None = None, *, keep: int = 0) -> int:
        """See `Engine`."""
        taken = self._table.acquire(slot, keep=keep)
        # Passes read behind a slot's rows and ignore what is there, if it is a number. Padded ones write there, too.
        end = max(keep, self._reached[taken]) if self.static_passes is None else None
        with torch.inference_mode():
            self.storage.clear(taken, keep, end)
        self._reached[taken] = keep
        return taken

    def release(self, slot: int, *, keep: int = 0) -> None:
        """See `Engine`."""
        self._table.release(slot, keep=keep)

    def cached(self, slot: int) -> int:
        """See `Engine`."""
        return self._table.cached(slot)

    def scratch(self, slot: int) -> int:
        """See `Engine`."""
        return self._table.scratch(slot)

    @torch.inference_mode()
    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See `Engine`."""
        arrays = packed(batch)
        added = self._table.check(arrays)
        plan = plan_pass(arrays, added)
        for slot, total in zip(plan.slots, plan.totals, strict=True):
            self._reached[slot] = max(self._reached[slot], total)
        tapped = self._tapped(arrays)
        if self.static_passes is None:
            values_RV = self._run(plan, tapped)
        else:
            values_RV = self.static_passes.run(plan, tapped)
        self._table.grow(added)
        hidden_KLD = None if tapped is None else tapped.stacked()
        recording_s = 0.0 if self.static_passes is None else self.static_passes.recording_s
        return Logits(
            values_RV=values_RV,
            offsets=plan.offsets,
            hidden_KLD=hidden_KLD,
            recording_s=recording_s,
        )

    def _tapped(self, batch: Batch) -> TappedStates | None:
        taps = batch.taps
        if taps is None:
            return None
        return TappedStates(taps.layers, to_device(taps.rows_K, self._spec.device))

    def _run(self, plan: PassLayout, tapped: TappedStates | None) -> torch.Tensor:
        """Runs a pass on a CPU."""
        rows_2M = torch.from_numpy(np.stack((plan.added.tokens_R, plan.positions())))
        wanted = None
        if len(plan.wanted_W) < plan.num_rows:
            wanted = torch.from_numpy(plan.wanted_W)
        cache = planned_cache(plan, self.storage)
        attend = planned_attention(plan, self.storage)
        return self._call(rows_2M[:1], rows_2M[1:], cache, attend, wanted, tapped)

    def _call(
        self,
        tokens_1M: torch.Tensor,
        positions_1M: torch.Tensor,
        cache: PassCache,
        attend: Attend,
        wanted: torch.Tensor | None,
        tapped: TappedStates | None = None,
    ) -> torch.Tensor:
        """Runs the model on packed rows; gives the logits of the wanted ones, None: all."""
        run = self._modules if self.llama is None else self.llama
        return run(tokens_1M, positions_1M, cache, attend, wanted, tapped).float()

    @torch.inference_mode()
    def rebase(self, moves: Moves) -> None:
        """See `Engine`."""
        self._table.rebase(moves)
        self.storage.move(moved_rows(moves, self._table.cached_S))

    @torch.inference_mode()
    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """See `Engine`."""
        self._table.copy_prefix(source, destination, length)
        self.storage.copy(source, destination, length)
        self._reached[destination] = max(self._reached[destination], length)

    def truncate(self, slot: int, length: int) -> None:
        """See `Engine`."""
        self._table.truncate(slot, length)
