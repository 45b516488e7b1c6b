"""Peak memory of scoring and training: logits in chunks, and activations computed again.

    python benchmarks/memory.py [--model FOLDER]

Every number is from a separate process: its peak resident memory less that before the pass. Without
a model it is a forward and backward pass over the head, logprobs and entropy, with Qwen2.5's
vocabulary and the hidden size of its 0.5 B model. With one it is a whole pass of that policy in
float32, with and without optim.gradient_checkpointing.
"""

import argparse
import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

VOCABULARY, HIDDEN = 151_936, 896
TOKENS = (512, 1024, 2048)
ROWS, LENGTH, SAMPLED = 4, 512, 256  # of the second table
LORA = "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="")
    args = parser.parse_args()
    if args.model:
        of_policy(args.model)
    else:
        of_head()


def of_head() -> None:
    print(f"head of {VOCABULARY:,} x {HIDDEN}, float32: logprobs, entropy and their gradients")
    print(f"{'tokens':>8}{'whole':>12}{'in chunks':>12}{'largest difference':>22}")
    for tokens in TOKENS:
        (whole, _, one), (chunks, _, other) = (measure(head, tokens, c) for c in (False, True))
        print(
            f"{tokens:>8}{whole:>8,} MiB{chunks:>8,} MiB{float((one - other).abs().max()):>22.1e}"
        )


def of_policy(model: str) -> None:
    print(f"{model}, {ROWS} rows x {LENGTH} tokens, {SAMPLED} sampled each, forward + backward")
    print(f"{'':>16}{'activations kept':>24}{'computed again':>24}")
    for name, rank in (("all weights", 0), ("LoRA, rank 16", 16)):
        cells = [measure(policy, model, rank, again) for again in (False, True)]
        print(f"{name:>16}", *(f"{peak:>13,} MiB {s:>5.1f} s" for peak, s, _ in cells))


def measure(run: Callable[..., None], *arguments: object) -> tuple[int, float, torch.Tensor]:
    """Return MiB at the peak, seconds, and what the pass gave, from a fresh process."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(sender, *arguments))
    process.start()
    sender.close()
    peak, seconds, values = receiver.recv()
    process.join()
    return peak, seconds, torch.tensor(values)


def timed(sender: Connection, work: Callable[[], torch.Tensor]) -> None:
    before, began = peak_mib(), time.monotonic()
    values = work()
    sender.send((peak_mib() - before, time.monotonic() - began, values.tolist()))


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def head(sender: Connection, tokens: int, in_chunks: bool) -> None:
    from rltune.losses.entropy import chunked_logprobs_entropy, logprobs_of, token_entropy
    from rltune.policy.logprobs import chunk_of

    torch.manual_seed(0)
    weight = (torch.randn(VOCABULARY, HIDDEN) / HIDDEN**0.5).requires_grad_()
    hidden = torch.randn(tokens, HIDDEN, requires_grad=True)
    ids = torch.randint(VOCABULARY, (tokens,))
    weight.grad = torch.zeros_like(weight)

    def work() -> torch.Tensor:
        if in_chunks:
            scores = chunked_logprobs_entropy(
                hidden, weight, ids, temperature=1.0, chunk=chunk_of(VOCABULARY), entropy="value"
            )
            logprobs = scores.logprobs_M
        else:
            logits = hidden @ weight.T
            logprobs = logprobs_of(logits, ids, temperature=1.0)
            token_entropy(logits.detach())
        logprobs.sum().backward()
        return logprobs.detach()

    timed(sender, work)


def policy(sender: Connection, model: str, rank: int, again: bool) -> None:
    from rltune.policy.load import load_policy
    from rltune.spec.schema.trial import LoraConfig
    from rltune.trainer.ranks.scoring import score_actions

    loaded = load_policy(
        model,
        dtype="float32",
        template="plain",
        is_bare=False,
        env_kind="",
        device="cpu",
        lora=LoraConfig(rank=rank, targets=LORA),
        gradient_checkpointing=again,
    )
    ids = torch.randint(100, 10_000, (ROWS, LENGTH))
    mask = torch.arange(LENGTH).expand(ROWS, -1) >= LENGTH - SAMPLED
    for parameter in loaded.model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)

    def work() -> torch.Tensor:
        scores = score_actions(loaded.model, ids, mask, temperature=1.0, entropy="value")
        scores.tokens.logprobs_M.sum().backward()
        return scores.tokens.logprobs_M.detach()[:1]

    timed(sender, work)


if __name__ == "__main__":
    main()
