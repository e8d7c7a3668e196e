from icl25_pn_gail.cli import main
from icl25_pn_gail.demo import mean_claim


def test_claim_fails_far_from_zero():
    assert not mean_claim([0.2, 0.3]).holds


def test_reproduce_holds_its_claim(tmp_path):
    assert main(["reproduce", "--out", str(tmp_path / "run"), "--n-seeds", "2"]) == 0
