# SPDX-License-Identifier: Apache-2.0
"""What is packed comes back to the last bit, and what was changed since does not come back."""

import io
import json

import numpy as np
import pytest

from pymc_sgcv.kernel.low_rank import LowRank
from pymc_sgcv.kernel.preconditioners import Dense, Diagonal
from pymc_sgcv.sampling.packing import Damaged, OtherVersion, _decode, pack, peek, unpack
from pymc_sgcv.setup.tuning import Motion

ALL_BUT_SIZES = {"subsampling": "block", "weights": [], "strata": []}
_rng = np.random.default_rng(0)


def packed(value):
    file = io.BytesIO()
    pack(value, file)
    return file.getvalue()


def back(value):
    return unpack(io.BytesIO(packed(value)))


def test_trees_of_numbers_and_arrays_come_back():
    value = {
        "numbers": [1, 2**100, 0.1, np.inf, -0.0, True, None, "τ"],
        "pair": (1, (2.0, "a")),
        "array": np.asfortranarray(_rng.normal(size=(3, 4))),
        "bits": _rng.integers(0, 2**63, 4).astype(np.uint64),
        "none": np.empty((0, 3)),
        "scalar": np.float64(0.1) / 3,
    }
    found = back(value)
    assert found["numbers"] == value["numbers"]
    assert np.signbit(found["numbers"][4])
    assert found["pair"] == value["pair"]
    assert found["scalar"] == value["scalar"]
    for name in ("array", "bits", "none"):
        np.testing.assert_array_equal(found[name], value[name])
        assert found[name].dtype == value[name].dtype
    assert found["array"].flags.f_contiguous  # products of matrices are rounded by their layout


@pytest.mark.parametrize(
    "factor",
    [
        Dense(_rng.normal(size=(3, 3))),
        Diagonal(_rng.random(3)),
        LowRank(_rng.random(3), np.eye(3)[:, :1], np.array([2.0])),
    ],
)
def test_preconditioners_come_back(factor):
    found = back({"a": factor, "b": factor})
    assert type(found["a"]) is type(factor)
    np.testing.assert_array_equal(found["b"].apply(np.ones(3)), factor.apply(np.ones(3)))


def test_records_come_back_and_functions_do_not():
    found = back([Motion(friction=0.3), print])
    assert found == [Motion(friction=0.3), None]


def test_what_is_shared_is_stored_once():
    array = np.zeros(10_000)
    assert len(packed({"a": array, "b": array})) < 1.1 * array.nbytes


def test_what_cannot_come_back_is_refused():
    with pytest.raises(TypeError, match="cannot be stored"):
        packed({"lock": object()})


@pytest.mark.parametrize("where", [500, 700])
def test_a_changed_byte_is_noticed(where):
    data = bytearray(packed({"a": np.arange(100.0)}))
    data[where] ^= 1
    with pytest.raises(Damaged):
        unpack(io.BytesIO(bytes(data)))


def test_a_file_that_was_cut_off_is_noticed():
    data = packed({"a": np.arange(100.0)})
    for n in (0, 10, len(data) // 2, len(data) - 1):
        with pytest.raises(Damaged):
            unpack(io.BytesIO(data[:n]))


def test_only_records_of_this_package_are_made():
    tree = json.dumps({"class": "subprocess:Popen", "has": {"dict": {}}}).encode()
    file = io.BytesIO()
    np.savez(file, tree=np.frombuffer(tree, dtype=np.uint8))
    with pytest.raises(Damaged, match="none of this package's"):
        unpack(io.BytesIO(file.getvalue()))


def test_one_number_can_be_had_without_the_rest(tmp_path):
    file = tmp_path / "state.npz"
    file.write_bytes(packed({"done": 17, "a": np.zeros(1000)}))
    assert peek(file, "done") == 17
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(Damaged):
        peek(file, "done")


def test_a_record_of_another_version_is_named():
    """What it has more is refused; what it has less is what a new record begins with."""
    tree = {"class": "pymc_sgcv.setup.tuning:Motion", "has": {"dict": {"kind": 1, "wings": 2}}}
    with pytest.raises(OtherVersion, match="a Motion here has no wings"):
        _decode(tree, {})
    with pytest.raises(OtherVersion, match="a Layout here has a batch_sizes"):
        _decode({"class": "pymc_sgcv.rows.layout:Layout", "has": {"dict": ALL_BUT_SIZES}}, {})
    tree["has"] = {"dict": {"kind": 1}}
    assert _decode(tree, {}) == Motion(1)
    with pytest.raises(OtherVersion, match="there is no"):
        _decode(tree | {"class": "pymc_sgcv.setup.tuning:Emotion"}, {})
