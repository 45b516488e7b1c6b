"""Texts with half of a character, which no file, tokenizer or message can carry."""


def half_character(text: str) -> str:
    r"""Return the first lone surrogate of a text as `U+D83D`; empty where the text is whole.

    JSON may spell one (`"\ud83d"`), and so may bytes that were read with `surrogateescape`.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"U+{ord(text[error.start]):04X}"
    return ""
