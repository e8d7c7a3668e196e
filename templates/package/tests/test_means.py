import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from __module__ import running_mean


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_last_entry_is_the_mean(values):
    x = np.array(values)
    np.testing.assert_allclose(running_mean(x)[-1], x.mean(), atol=1e-6)


@pytest.mark.parametrize(
    ("x", "message"),
    [(np.array([]), "x is empty"), (np.array([1.0, np.nan, np.inf]), "has 2 such entries, first nan at 1")],
)
def test_bad_input_is_refused(x, message):
    with pytest.raises(ValueError, match=message):
        running_mean(x)
