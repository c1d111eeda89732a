"""The byte-level tokenizer of the demonstration models: 4096 entries, lossless, with a chat form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from outrider.actors.train.text.corpus import ChatTurn, Document
from outrider.actors.train.text.packing import Tokens
from outrider.actors.train.training_errors import DataError

VOCABULARY_SIZE = 4096
BEGIN, END, PAD = "<|begin|>", "<|end|>", "<|pad|>"
SYSTEM, USER, ASSISTANT = "<|system|>", "<|user|>", "<|assistant|>"
ROLES = (SYSTEM, USER, ASSISTANT)
SPECIAL = (BEGIN, END, PAD, *ROLES)
CONTEXT = 2048

# One turn is <|role|>text<|end|>; the model's turn is asked for by an open <|assistant|>.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('role must be system, user or assistant, not ' + message['role']) }}"
    "{% endif %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def train_tokenizer(
    texts: Iterable[str], vocabulary_size: int = VOCABULARY_SIZE
) -> PreTrainedTokenizerFast:
    """Learn byte-level BPE merges (Sennrich et al. 2016, arXiv 1508.07909; GPT-2's byte alphabet).

    Digits stand alone; a space joins the word after it. Plain text is opened with <|begin|>.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A",
        pair=f"{BEGIN} $A $B",
        special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))],
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
        chat_template=CHAT_TEMPLATE,
    )


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Read a saved tokenizer."""
    loaded = PreTrainedTokenizerFast.from_pretrained(folder)
    assert isinstance(loaded, PreTrainedTokenizerFast)
    return loaded


def encode_documents(
    tokenizer: PreTrainedTokenizerFast, documents: Sequence[Document], piece_length: int = 1024
) -> list[Tokens]:
    """Token ids of documents, each from <|begin|> to its last <|end|>, long ones in pieces.

    Text is encoded turn by turn with markers switched off, so that a marker written inside a turn
    stays text.

    Returns:
        token arrays [at most piece_length], in order; a document's pieces follow one another.

    Raises:
        DataError: A message is of a role that the model does not know.
    """
    table = tokenizer.get_vocab()
    backend = tokenizer.backend_tokenizer
    turns = [document.messages or (ChatTurn("", document.text),) for document in documents]
    flat = [message.content for messages in turns for message in messages]
    was = backend.encode_special_tokens
    backend.encode_special_tokens = True
    try:
        encoded = iter(backend.encode_batch_fast(flat, add_special_tokens=False))
    finally:
        backend.encode_special_tokens = was
    pieces: list[Tokens] = []
    for messages in turns:
        ids = [table[BEGIN]]
        for message in messages:
            if message.role:
                if (mark := f"<|{message.role}|>") not in ROLES:
                    raise DataError(
                        f"a message's role is {message.role!r}; the model knows {', '.join(ROLES)}"
                    )
                ids.append(table[mark])
            ids.extend(next(encoded).ids)
            ids.append(table[END])
        array = np.array(ids, dtype=np.uint16)
        pieces.extend(array[at : at + piece_length] for at in range(0, len(ids), piece_length))
    return pieces


def document_text(document: Document) -> str:
    """A document as one string, for learning merges."""
    return document.text or "\n".join(message.content for message in document.messages)
