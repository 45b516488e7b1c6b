"""How many tokens a text has for a model, found out without loading the model or torch."""

from pathlib import Path

_SHIPPED = Path(__file__).parent / "weights"


def count_tokens(model: str, text: str, *, env_kind: str, base: Path) -> int | None:
    """Return the tokens of a text that goes on another one; None where that is not known here.

    Args:
        model: As `policy.model` names it.
        text: What is encoded, special tokens included.
        env_kind: Chooses among the shipped tiny policies.
        base: Folder to which a relative path refers.

    """
    folder = _SHIPPED / env_kind if model == "tiny" else base / model
    file = folder / "tokenizer.json"
    if not file.is_file():
        return None
    from tokenizers import Tokenizer

    try:
        encoding = Tokenizer.from_file(str(file)).encode(text, add_special_tokens=False)
    except Exception:  # of the library's own; the trial refuses such a file by name
        return None
    return sum(end > start for start, end in encoding.offsets)
