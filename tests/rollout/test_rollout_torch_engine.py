import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from rltune.policy.decode import TransformersDecoder
from rltune.rollout.engine import Request, SamplingParams
from rltune.rollout.torch_engine import TorchEngine, _draw

ONE = SamplingParams(temperature=1.0, max_tokens=1, max_context=200)


class Counting:
    """A decoder that counts the rows and columns it is given."""

    def __init__(self, decoder):
        self._decoder = decoder
        self.fed = []

    def __getattr__(self, name):
        return getattr(self._decoder, name)

    def extend(self, cache, ids_BT, *others):
        self.fed.append(tuple(ids_BT.shape))
        return self._decoder.extend(cache, ids_BT, *others)


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


def test_a_shared_prompt_is_computed_once_and_turns_are_not_recomputed(small_policy):
    decoder = Counting(small_policy().decoder())
    engine = TorchEngine(decoder)
    asked = [Request(i, [4 + i // 8] * 6, seed=i) for i in range(16)]
    completions = engine.generate(asked, ONE)
    assert decoder.fed == [(2, 6)]
    onward = [
        Request(r.conversation, [*r.prompt_ids, *c.token_ids, 7, 8], r.seed)
        for r, c in zip(asked, completions, strict=True)
    ]
    engine.generate(onward[:10], ONE)
    assert decoder.fed[1:] == [(10, 3)]  # the sampled token and two new ones


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
