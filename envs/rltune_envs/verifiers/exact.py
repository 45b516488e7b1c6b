"""The whole response is the answer."""

from unicodedata import normalize

from rltune_envs.verifiers.base import TextVerifier, Verifier


def normal_text(text: str) -> str:
    """Return a text in the form in which texts are compared.

    Characters are composed (e and accent become é), white space is collapsed and stripped. Case
    and punctuation count.
    """
    return " ".join(normalize("NFC", text).split())


def exact(*, ignore_case: bool = False) -> Verifier:
    """Return the verifier that compares the whole response with the answer.

    Args:
        ignore_case: Whether `Paris` equals `paris`.

    """

    def form(text: str) -> str:
        return normal_text(text).casefold() if ignore_case else normal_text(text)

    return TextVerifier(
        find=lambda response: normal_text(response) or None,
        is_equal=lambda given, gold: form(given) == form(gold),
        frame=("", ""),
        has_form=False,
    )
