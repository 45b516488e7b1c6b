"""TRL's side of `peers.py`: a GRPOTrainer on the work, one optimiser step a turn.

    python -m peer_work.trl_side MODEL WORK STEPS MICRO      in TRL's own environment

A multi-turn work is played by `rollout_func`, TRL's interface for a loop of one's own, with TRL's
own generation at each turn. Its tools API would need a model that writes tool calls.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "WANDB_MODE": "disabled"}

import transformers
from datasets import Dataset
from peer_work.work import (
    GRAD_CLIP,
    LR,
    WEIGHT_DECAY,
    WORKS,
    Side,
    Work,
    observation_of,
    prompt_of,
    reward_of,
)
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Turns(TrainerCallback):
    """Begins and ends a step as the driver says."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.sampled = 0

    def on_step_begin(self, *_: object, **__: object) -> None:
        self.side.begin()

    def on_step_end(self, *_: object, **__: object) -> None:
        self.side.end(lambda: self.sampled)


def play(prompts: list[str], trainer: GRPOTrainer, work: Work) -> dict[str, list[list[int]]]:
    """Play the turns of a multi-turn work; generation starts from the whole context each turn."""
    tokenizer = trainer.processing_class
    prompt_ids = [tokenizer(prompt)["input_ids"] for prompt in prompts]
    completion_ids: list[list[int]] = [[] for _ in prompts]
    env_mask: list[list[int]] = [[] for _ in prompts]
    for turn in range(work.turns):
        contexts = [p + c for p, c in zip(prompt_ids, completion_ids, strict=True)]
        sampled, _ = trainer._generate_single_turn(contexts, None, {}, work.group_size)
        for ids, mask, new in zip(completion_ids, env_mask, sampled, strict=True):
            seen: list[int] = []
            if turn < work.turns - 1:
                answer = observation_of(tokenizer.decode(new), work.observation)
                seen = tokenizer(answer)["input_ids"]
            ids += [*new, *seen]
            mask += [1] * len(new) + [0] * len(seen)
    none = [[0.0] * len(ids) for ids in completion_ids]  # read with vLLM only
    return {
        "prompt_ids": prompt_ids,
        "completion_ids": completion_ids,
        "logprobs": none,
        "env_mask": env_mask,
    }


def main(model: str, name: str, steps: str, micro: str) -> None:
    work, side = WORKS[name], Side()
    turns = Turns(side)
    policy = AutoModelForCausalLM.from_pretrained(model)
    side.watch(policy)
    transformers.utils.logging.set_verbosity_error()

    def reward(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        seen = (work.turns - 1) * work.observation
        turns.sampled = sum(len(ids) - seen for ids in completion_ids)
        return [reward_of(completion) for completion in completions]

    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=policy,
            reward_funcs=reward,
            args=GRPOConfig(
                output_dir=str(Path(folder)),
                per_device_train_batch_size=int(micro),
                gradient_accumulation_steps=work.rows // int(micro),
                num_generations=work.group_size,
                max_completion_length=work.sampled,
                max_steps=int(steps),
                beta=0.0,
                temperature=1.0,
                learning_rate=LR,
                weight_decay=WEIGHT_DECAY,
                max_grad_norm=GRAD_CLIP,
                logging_steps=10**6,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                disable_tqdm=True,
                seed=0,
            ),
            train_dataset=Dataset.from_list(
                [{"prompt": prompt_of(seed, work.prompt)} for seed in range(1024)]
            ),
            processing_class=AutoTokenizer.from_pretrained(model),
            callbacks=[turns],
            rollout_func=(lambda p, t: play(p, t, work)) if work.turns > 1 else None,
        )
        trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
