import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from rltune.policy.decode import TransformersDecoder
from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.torch_engine import TorchEngine, _draw

ONE = SamplingParams(temperature=1.0, max_tokens=1, max_context=200)


class Counting:
    """A decoder that counts the rows and columns it is given, and the rows it copies."""

    def __init__(self, decoder):
        self._decoder = decoder
        self.fed, self.copied = [], 0

    def __getattr__(self, name):
        return getattr(self._decoder, name)

    def extend(self, cache, new, starts):
        self.fed.append((len(new), max(map(len, new))))
        return self._decoder.extend(cache, new, starts)

    def copy(self, cache, sources, targets, *, used):
        self.copied += len(targets)
        self._decoder.copy(cache, sources, targets, used=used)


def next_logp(policy, prompt, *, temperature=1.0):
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([prompt])).logits[0, -1]
    return torch.log_softmax(logits / temperature, -1)


@pytest.mark.parametrize(
    ("u", "token"),
    [(0.0, 1), (0.24, 1), (0.26, 2), (0.99, 2)],  # cumulative: 0, 1/4, 1, 1
)
def test_draw_by_hand(u, token):
    logits = torch.tensor([[-np.inf, np.log(1.0), np.log(3.0), -np.inf]], dtype=torch.float32)
    ids, logp = _draw(logits, temperature=1.0, uniforms_B=np.array([u]))
    assert ids.tolist() == [token]
    assert logp.item() == pytest.approx(np.log([1 / 4, 3 / 4][token - 1]))


def test_draw_never_takes_an_impossible_token():
    logits = torch.full((1000, 8), -torch.inf)
    logits[:, [2, 5]] = 0.0
    edge = np.linspace(0, 1, 1000, endpoint=False)
    edge[-1] = 1 - 2**-53
    ids, _ = _draw(logits, temperature=0.7, uniforms_B=edge)
    assert set(ids.tolist()) == {2, 5}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_samples_follow_the_policy_at_its_temperature(small_policy, temperature):
    policy, n = small_policy(), 3000
    asked = [Request(i, [4, 9, 2, 5], seed=i) for i in range(n)]
    params = SamplingParams(temperature, 1, 200)
    completions = TorchEngine(policy.decoder()).generate(asked, params)
    counts = np.bincount([c.token_ids[0] for c in completions], minlength=16)
    expected = n * next_logp(policy, [4, 9, 2, 5], temperature=temperature).exp().numpy()
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert chi2 < 44.3  # 15 degrees of freedom, p = 1e-4


def test_greedy_is_the_argmax_and_reports_logprobs_at_temperature_1(small_policy):
    policy = small_policy()
    prompt = [4, 9, 2, 5]
    (got,) = TorchEngine(policy.decoder()).generate(
        [Request(0, prompt, 0)], SamplingParams(0.0, 6, 200)
    )
    for place, (token, logp) in enumerate(zip(got.token_ids, got.logprobs, strict=True)):
        scores = next_logp(policy, [*prompt, *got.token_ids[:place]])
        assert token == int(scores.argmax())
        assert logp == pytest.approx(scores[token].item(), abs=1e-5)


def test_seeds_matter(small_policy):
    asked = [Request(i, [4, 9, 2, 5], seed=i) for i in range(20)]
    completions = TorchEngine(small_policy().decoder()).generate(asked, SamplingParams(1.0, 8, 200))
    assert len({c.token_ids for c in completions}) > 10


def onward_of(asked, completions, *, observation=lambda index: (7, 8)):
    return [
        Request(r.conversation, [*r.prompt_ids, *c.token_ids, *observation(index)], r.seed)
        for index, (r, c) in enumerate(zip(asked, completions, strict=True))
    ]


def test_turns_are_not_computed_again(small_policy):
    decoder = Counting(small_policy().decoder())
    engine = TorchEngine(decoder)
    asked = [Request(i, [4 + i // 8] * 6, seed=i) for i in range(16)]
    completions = engine.generate(asked, ONE)
    assert decoder.fed == [(2, 6)]  # two prompts
    onward = onward_of(asked, completions, observation=lambda index: (4 + index % 8, 7))
    engine.generate(onward[:10], ONE)
    assert decoder.fed[1:] == [(10, 3)]  # the sampled token and two new ones, all unequal


def test_equal_contexts_are_computed_once_at_every_token_and_turn(small_policy):
    """16 conversations from two prompts; what they said decides what they see."""
    decoder = Counting(small_policy().decoder())
    engine, params = TorchEngine(decoder), SamplingParams(1.0, 4, 200)
    asked = [Request(i, [4 + i // 8] * 6, seed=i) for i in range(16)]
    for _ in range(3):
        decoder.fed.clear()
        completions = engine.generate(asked, params)
        begun = [len({(*r.prompt_ids,) for r in asked})]
        for n in range(1, params.max_tokens):
            going_on = {
                (*r.prompt_ids, *c.token_ids[:n])
                for r, c in zip(asked, completions, strict=True)
                if len(c.token_ids) > n
            }
            begun.append(len(going_on))
        assert [rows for rows, _ in decoder.fed] == [rows for rows in begun if rows]
        asked = onward_of(asked, completions)
    assert decoder.fed[0][0] > 2  # they have parted


def test_one_policy_without_choice_is_one_row(small_policy):
    """Greedy members of a group stay together to the end, and nothing is copied."""
    decoder = Counting(small_policy().decoder())
    engine = TorchEngine(decoder)
    asked = [Request(i, [4, 9, 2, 5], seed=i) for i in range(16)]
    for _ in range(3):
        completions = engine.generate(asked, SamplingParams(0.0, 6, 200))
        asked = onward_of(asked, completions)
    assert {rows for rows, _ in decoder.fed} == {1}
    assert decoder.copied == 0


def test_what_ended_is_copied_once_a_turn_at_most(small_policy):
    decoder = Counting(small_policy().decoder())
    engine = TorchEngine(decoder)
    asked = [Request(i, [4 + i % 12, 4 + i // 12, 5], seed=i) for i in range(48)]
    completions = engine.generate(asked, SamplingParams(1.0, 30, 200))
    lengths = [len(c.token_ids) for c in completions]
    for place, (rows, _) in enumerate(decoder.fed):
        assert rows == sum(length > place for length in lengths)
    assert decoder.copied <= 2 * len(asked)  # an end swaps two rows


def test_sync_forgets_what_older_weights_computed(small_policy):
    policy = small_policy()
    engine = TorchEngine(policy.decoder())
    (said,) = engine.generate([Request(0, [4, 9, 2, 5], 0)], ONE)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.05)
    onward = [Request(0, [4, 9, 2, 5, *said.token_ids, 6], 0)]
    want = next_logp(policy, onward[0].prompt_ids)
    engine.sync()
    (fresh,) = engine.generate(onward, ONE)
    assert fresh.logprobs[0] == pytest.approx(want[fresh.token_ids[0]].item(), abs=1e-5)


def test_absolute_positions_never_leave_the_context():
    """A long row beside a short one: the long one's unused places are past the last position."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=16,
        n_positions=24,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=3,
    )
    decoder = TransformersDecoder(GPT2LMHeadModel(config).eval(), pad_id=0, end_ids=(3,))
    params = SamplingParams(1.0, 4, 24)
    engine = TorchEngine(decoder)
    asked = [Request(0, [4, 5, 6, 7] * 5, 1), Request(1, [4], 2)]
    said = engine.generate(asked, params)
    assert len(said[0].token_ids) == 4  # to the last position
    onward = [
        Request(0, [*asked[0].prompt_ids, *said[0].token_ids], 1),
        Request(1, [*asked[1].prompt_ids, *said[1].token_ids, *[5] * 15], 2),
    ]
    full, other = engine.generate(onward, params)
    assert full.token_ids == ()
    assert other.token_ids == TorchEngine(decoder).generate(onward[1:], params)[0].token_ids
