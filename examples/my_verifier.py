"""A custom verifier. In a config: `env.verifier: examples.my_verifier:score`."""


def score(prompt: str, response: str, row: dict[str, str]) -> float:
    """Return 1 for all words of the row's answer, in any order, and less for fewer."""
    wanted = set(row["answer"].split())
    return len(wanted & set(response.split())) / len(wanted)
