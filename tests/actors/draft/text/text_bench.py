"""A worker with a method that needs no model, loaded as the actor loads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.actors.draft.bench import Bench, Verdict, View, frame_of, make_attach

from outrider.actors.draft.service.draft_server import load_method
from outrider.actors.draft.state.draft_events import Detach, SessionKey
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.trees import base_hash


class TextBench(Bench):
    """A worker, and sessions that say what the test says."""

    def __init__(
        self,
        method: str,
        *,
        options: Mapping[str, Any] | None = None,
        num_slots: int = 8,
        max_ahead: int = 64,
        lockstep: bool = False,
    ) -> None:
        loaded = load_method(
            DraftSettings(
                name="text",
                incarnation=1,
                method=method,
                options=options or {},
                num_slots=num_slots,
                max_ahead=max_ahead,
                lockstep=lockstep,
            )
        )
        super().__init__(loaded.sessions, loaded.drafter, max_ahead=max_ahead, lockstep=lockstep)

    def attach(
        self,
        tokens: Sequence[int],
        *,
        handle: int = 7,
        prompt_length: int | None = None,
        group: int = 0,
        max_depth: int = 3,
        max_tokens: int = 10_000,
        temperature: float = 0.0,
        tokenizer: str = "",
        tenant: int = 0,
    ) -> SessionKey:
        """Attaches a session and lets the worker propose."""
        attach = make_attach(
            handle=handle,
            tokens=tokens,
            prompt_length=prompt_length,
            speculation=Speculation(max_depth=max_depth),
            max_tokens=max_tokens,
            temperature=temperature,
        )
        self.worker.post(replace(attach, group=group, tokenizer=tokenizer, tenant=tenant))
        self.settle()
        return attach.key

    def commit(self, key: SessionKey, tokens: Sequence[int]) -> None:
        """Commits tokens, without any work after that."""
        text = [*self.text(key), *tokens]
        verdict = Verdict(
            handle=key.handle,
            epoch=1,
            length=len(text),
            hash=base_hash.extend_all(base_hash.EMPTY, text),
            tokens=tuple(tokens),
            credits=64,
        )
        self.worker.core.take(frame_of([verdict]), self.now)

    def leave(self, key: SessionKey) -> None:
        """Ends a session."""
        self.worker.post(Detach(key=key))
        self.settle()

    def decode(self, key: SessionKey, output: Sequence[int]) -> int:
        """Has a target say an output as it would with these trees: what is foreseen, and a token more. Returns its passes."""
        done, passes = 0, 0
        while done < len(output):
            tree, node = self.tree(key), -1
            count = 1
            while done + count <= len(output):
                by_token = {tree.tokens[child]: child for child in tree.children(node)}
                if output[done + count - 1] not in by_token:
                    break
                node = by_token[output[done + count - 1]]
                count += 1
            self.commit(key, output[done : done + count])
            self.settle()
            done += count
            passes += 1
        return passes


def chain_of(tree: View, node: int = -1) -> list[int]:
    """Tokens from a node down, along first children."""
    tokens = []
    while children := tree.children(node):
        node = children[0]
        tokens.append(tree.tokens[node])
    return tokens
