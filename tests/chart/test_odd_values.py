"""Values that are odd and right are rendered as Kubernetes takes them."""

from __future__ import annotations

import pytest
from tests.chart.rendered import pods, render, scenario_file

CPU = str(scenario_file("cpu"))


@pytest.mark.parametrize(
    "repository", ["localhost:5000/outrider", "Registry.example.com/a/b--c_d.e", "outrider"]
)
@pytest.mark.parametrize("tag", ["", "0.1.0", f"v1_2.x@sha256:{'5e' * 32}"])
def test_image_is_repository_and_tag(repository: str, tag: str) -> None:
    """The tag may have a digest, by which nodes pull the same image for ever."""
    objects = render(
        "--values", CPU, "--set-string", f"image.repository={repository},image.tag={tag}"
    )
    images = {container["image"] for pod in pods(objects) for container in pod.spec["containers"]}

    assert images == {f"{repository}:{tag or '0.1.0'}"}
