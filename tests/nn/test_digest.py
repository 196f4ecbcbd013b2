import torch

from deeprc.nn.digest import digest_tensors


def test_the_digest_depends_on_names_and_numbers_but_not_on_strides_or_order() -> None:
    """A single element may have the stride 0, as that of an expanded tensor."""
    expected = digest_tensors({"a": torch.tensor([5]), "b": torch.arange(6.0).reshape(2, 3)})
    single = torch.tensor([5]).as_strided((1,), (0,))
    assert digest_tensors({"a": single, "b": torch.arange(6.0).reshape(2, 3)}) == expected
    transposed = torch.tensor([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]).T
    assert digest_tensors({"b": transposed, "a": torch.tensor([5])}) == expected
    assert digest_tensors({"a": torch.tensor([6]), "b": transposed}) != expected
