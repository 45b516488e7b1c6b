"""Memory that begins where it is asked to."""

import pytest
import torch

from rltune.maths.alignment import LINE, empty_at, place_of


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (7, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("place", [0, 8, 56])
def test_a_tensor_begins_at_its_place_and_holds_what_is_put_in(place, dtype, shape):
    tensor = empty_at(place, shape, dtype)
    assert (tensor.dtype, tuple(tensor.shape), tensor.is_contiguous()) == (dtype, shape, True)
    assert tensor.numel() == 0 or place_of(tensor) == place
    assert torch.equal(tensor.fill_(2.0), torch.full(shape, 2.0, dtype=dtype))


def test_a_place_in_the_middle_of_a_number_is_rounded_down():
    assert place_of(empty_at(7, (3,), torch.float32)) == 4


def test_a_slice_begins_behind_what_it_leaves_out():
    numbers = empty_at(0, (64,), torch.float32)
    assert [place_of(numbers[n:]) for n in (0, 1, 15, 16)] == [0, 4, 60, 0]
    assert 16 * numbers.element_size() == LINE
