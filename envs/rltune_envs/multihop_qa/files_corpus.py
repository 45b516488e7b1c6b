r"""Passages on disk and on the wire: the documents of Search-R1.

A document is `{"contents": "\"Title\"\ntext"}` (the title in the first line, quoted) or
`{"title": ..., "text": ...}`; an `id` and other keys beside them are not read.
"""

from dataclasses import asdict
from pathlib import Path

from rltune_envs.files_rows import Row, RowError, as_row, read_rows, text_of, unusable
from rltune_envs.multihop_qa.records import Passage


def passage_from_document(document: Row) -> Passage:
    """Return the passage of a document.

    Raises:
        RowError: It has neither `contents` nor `title` and `text`, or these hold no text.

    """
    title, text = document.get("title"), document.get("text")
    if isinstance(title, str) and isinstance(text, str):
        passage = Passage(title.strip(), text.strip())
    elif "contents" in document:
        first, _, rest = text_of(document, "contents").partition("\n")
        passage = Passage(_unquoted(first.strip()), rest.strip())
    else:
        keys = ", ".join(document) or "no key"
        raise RowError(f"a document needs contents, or title and text, as texts; found {keys}")
    if not passage.title and not passage.text:
        raise RowError("title and text are both empty")
    return passage


def document_from_passage(passage: Passage, *, number: int) -> dict[str, str]:
    """Return a passage as a document that every client of the protocol can read.

    Args:
        passage: The passage.
        number: Its index in the corpus, the document's id.

    """
    title = " ".join(passage.title.split())  # the first line of contents ends it
    contents = f'"{title}"\n{passage.text}'
    return {"id": str(number), "contents": contents, **asdict(passage)}


def load_corpus(path: str | Path) -> tuple[Passage, ...]:
    """Read a corpus whole, in the order of the file.

    Args:
        path: JSON lines (or one JSON list) of documents.

    Raises:
        TaskError: The file cannot be read, or holds rows that are not documents; they are named.

    """
    passages, reasons = [], {}
    rows = read_rows(path)
    for number, value in rows:
        try:
            passages.append(passage_from_document(as_row(value)))
        except RowError as error:
            reasons[number] = str(error)
    if reasons:
        raise unusable(path, reasons, total=len(rows), kind="documents of a corpus")
    return tuple(passages)


def _unquoted(title: str) -> str:
    """Return a title without the one pair of quotes around it."""
    is_quoted = len(title) > 1 and title[0] == title[-1] == '"'
    return title[1:-1].strip() if is_quoted else title
