from __future__ import annotations

import pytest

from icl25_pi_dion.named_problems import find_problem, parse_settings
from icl25_pi_dion.problems import DarcyPermeability, HelmholtzCoefficient, ReactionDiffusionSource


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], {}),
        (["D=0.02"], {"D": 0.02}),
        (["D=1e-2,n_sensors=21", "measurement=window"], {"D": 0.01, "n_sensors": 21, "measurement": "window"}),
        (["window=0,0.5,k=2"], {"window": (0, 0.5), "k": 2}),
        (["window=(0.1, 0.5)"], {"window": (0.1, 0.5)}),
        (["a=true,b=none"], {"a": True, "b": None}),
    ],
)
def test_settings_are_parsed(texts, expected):
    found = parse_settings(texts)
    assert found == expected
    assert {name: type(value) for name, value in found.items()} == {n: type(v) for n, v in expected.items()}


@pytest.mark.parametrize(
    ("texts", "message"),
    [(["D"], "expected key=value, found 'D'"), (["0.1"], "expected key=value"), (["D=1", "D=2"], "D is set twice")],
)
def test_settings_that_are_none_are_refused(texts, message):
    with pytest.raises(ValueError, match=message):
        parse_settings(texts)


def test_names_stand_for_the_problems_of_the_paper():
    linear, quadratic = find_problem("rd"), find_problem("rd-quadratic", {"k": 0.02})
    assert isinstance(linear, ReactionDiffusionSource)
    assert isinstance(quadratic, ReactionDiffusionSource)
    assert (linear.D, linear.kappa, linear.k) == (0.01, 0.1, 0)
    assert (quadratic.D, quadratic.kappa, quadratic.k) == (0.01, 0, 0.02)
    assert isinstance(find_problem("helmholtz", {"n_grid": 9, "measurement": "part"}), HelmholtzCoefficient)
    assert isinstance(find_problem("darcy", {"n_grid": 9}), DarcyPermeability)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("rd", {"d": 1}, "problem rd has no setting 'd'; it has D, kappa, k, T, measurement, n_sensors"),
        ("rd", {"kapa": 1}, "did you mean kappa"),
        ("helmholtz", {"f": 1}, "no setting 'f'"),
        ("rd", {"D": "high"}, "setting D of problem rd must be a number, found 'high'"),
        ("rd", {"D": -1}, "D must be > 0"),
        ("rd", {"n_sensors": 20.5}, "n_sensors of problem rd must be a whole number, found 20.5"),
        ("rd", {"n_sensors": True}, "must be a whole number, found True"),
        ("rd", {"window": 0.5}, "window of problem rd must be 2 numbers"),
        ("rd", {"window": (0, "a")}, "window of problem rd must be 2 numbers"),
    ],
)
def test_settings_that_do_not_fit_are_refused(name, settings, message):
    with pytest.raises(ValueError, match=message):
        find_problem(name, settings)


def test_a_file_of_the_user_s_is_executed_and_its_class_found(user_problem):
    problem = find_problem(str(user_problem), {"rate": 2})
    assert (type(problem).__name__, problem.rate) == ("Decay", 2)
    assert type(find_problem(f"{user_problem}:Decay")).__name__ == "Decay"
    with pytest.raises(ValueError, match=r"has no setting 'rte'; did you mean rate\?"):
        find_problem(str(user_problem), {"rte": 2})
    with pytest.raises(ValueError, match="has no subclass 'Growth' of InverseProblem; it has Decay"):
        find_problem(f"{user_problem}:Growth")


def test_a_file_may_import_its_neighbours_and_problems_of_the_package(user_problem):
    (user_problem.parent / "neighbour_of_my_pde.py").write_text("rate = 3.0\n")
    source = user_problem.read_text()
    header = "from icl25_pi_dion.problems import HelmholtzCoefficient\nfrom neighbour_of_my_pde import rate\n"
    user_problem.write_text(header + source.replace("float = 0.1", "float = rate"))
    assert find_problem(str(user_problem)).rate == 3


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n", "defines no subclass of icl25_pi_dion.InverseProblem"),
        ("x = = 1\n", "line 1: invalid syntax"),
        ("x = 1\n\nundefined\n", "line 3: NameError: name 'undefined' is not defined"),
        ("import no_such_module_anywhere\n", "line 1: ModuleNotFoundError"),
        (
            "from icl25_pi_dion import InverseProblem\nclass A(InverseProblem): pass\nclass B(InverseProblem): pass\n",
            r"defines A, B: choose one, such as .*my_pde.py:A",
        ),
        (
            "from icl25_pi_dion import InverseProblem\nclass A(InverseProblem):\n    derivatives = ('u_z',)\n",
            "u_z",
        ),
        (
            "from icl25_pi_dion import InverseProblem\nclass A(InverseProblem):\n    def __init__(self, a): pass\n",
            "missing 1 required positional argument: 'a'",
        ),
    ],
)
def test_files_that_define_no_problem_are_refused(tmp_path, source, message):
    path = tmp_path / "my_pde.py"
    path.write_text(source)
    with pytest.raises(ValueError, match=message):
        find_problem(str(path))
