"""Kernel page, explanation, comparison and counters, one promise each."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from service.dashboard.differences import against_no_fusion, total
from service.dashboard.explanations import explanation
from service.dashboard.figures import plan_figures
from service.dashboard.formats import duration
from service.dashboard.kernels import kernel_rows
from service.dashboard.metrics import read_counters
from service.dashboard.partition import MAX_BOXES, partition_view
from service.dashboard.strips import WIDTH, strip
from service.dashboard.tensors import Tensors, flows
from tests.service.dashboard import samples
from tests.service.dashboard.test_pages import JOB, KEY

BODY = samples.plan_body(layers=1)


def test_a_kernel_page_shows_source_trials_and_samples(used: TestClient) -> None:
    """All that is known of a kernel: its text in colours, its trials, every sample."""
    text = used.get(f"/plans/{KEY}/kernels/k3?job={JOB}").text
    assert '<span class="c-keyword">__kernel</span>' in text
    assert "20 of this kernel in the job" in text
    assert f'href="/jobs/{JOB}/trials/' in text
    assert "limited by registers" in text
    assert "why not fused?" in text


def test_a_library_kernel_has_no_source(used: TestClient) -> None:
    """The page says so instead of showing an empty box."""
    assert "no source of ours" in used.get(f"/plans/{KEY}/kernels/k0").text


def test_a_trial_shows_its_samples_and_its_log(used: TestClient) -> None:
    """Samples where they are stored; a failure's message, escaped."""
    listed = used.get(f"/v1/jobs/{JOB}/trials").json()["trials"]
    numbers = {one["trial"]: one["number"] for one in listed}
    timed = used.get(f"/jobs/{JOB}/trials/{numbers[3]}").text
    assert "4 samples between 30.0 µs and 33.0 µs, median 30.8 µs" in timed
    failed = used.get(f"/jobs/{JOB}/trials/{numbers[19]}").text
    assert "ptxas: &lt;b&gt;too many" in failed
    assert "<b>too many" not in failed


def test_trials_are_filtered_by_the_server(used: TestClient) -> None:
    """A family, an outcome and a kernel can be asked for together."""
    text = used.get(f"/jobs/{JOB}/trials?family=reduction&failure=compile").text
    assert "<h2>1 trial</h2>" in text
    assert "compile" in text
    assert "No trial fits" in used.get(f"/jobs/{JOB}/trials?kernel=nothing").text


def test_a_tensor_is_followed_through_reshapes() -> None:
    """The question about a cut is about real nodes, not about renamings."""
    kernel = BODY["kernels"][1]
    reads, writes = flows(BODY, kernel, samples.user_names(BODY))
    assert [(flow.kernel, flow.a, flow.b) for flow in reads] == [("k0", "n1", "n3")]
    assert writes[0].kernel == "k2"
    assert writes[0].bytes == 128 * 256 * 4
    assert writes[0].shape == "f32 [128, 256]"


def test_inputs_and_outputs_of_the_model_have_no_maker() -> None:
    """What comes from outside has no node, and says what it is."""
    tensors = Tensors(BODY)
    assert tensors.maker("t0") == ""
    assert tensors.place("t0") == "model input"
    assert tensors.place(BODY["graph"]["outputs"][0]) == "model output"


def test_an_opened_kernel_shows_its_nodes() -> None:
    """Nodes with what stays between them; the boxes around stay the same."""
    view = partition_view(BODY, {}, expand="3-3")
    assert [node["label"] for node in view["nodes"]] == [
        *("max", "sub", "exp", "sum", "div")
    ]
    assert all(node["parent"] == "3-3" for node in view["nodes"])
    assert len(view["links"]) == 4
    assert partition_view(BODY, {})["nodes"] == []


@pytest.mark.parametrize("expand", ["", "0-0", "100-400", "1187-1187"])
def test_a_model_of_5000_nodes_is_few_boxes(expand: str) -> None:
    """However it is opened, boxes and nodes together stay within the limit."""
    body = samples.plan_body(layers=130)
    assert len(body["graph"]["nodes"]) > 5000
    view = partition_view(body, {}, limit=MAX_BOXES, expand=expand)
    assert len(view["boxes"]) + len(view["nodes"]) <= MAX_BOXES


def test_every_cut_can_be_asked_about() -> None:
    """Each arrow names the two nodes at its ends."""
    for edge in partition_view(BODY, {})["edges"]:
        assert all(cut["a"] and cut["b"] for cut in edge["cuts"])


def test_an_explanation_has_a_price_in_words(used: TestClient) -> None:
    """What the plan does, why, and what the other choice would cost."""
    apart = used.get(f"/plans/{KEY}/explain?a=n1&b=n3&job={JOB}").text
    assert "Why are these two not fused?" in apart
    assert "One kernel would save at most" in apart
    together = used.get(f"/plans/{KEY}/explain?a=n6&b=n7&part=1").text
    assert "Separate kernels would cost at least" in together
    assert "<html" not in together


def test_names_take_the_place_of_ids_in_a_reason() -> None:
    """Each tensor's and node's name stands where its id stood, and only there."""
    answer = {
        "a": {"id": "n1", "op": "add", "kernels": ["k0"]},
        "b": {"id": "n2", "op": "mul", "kernels": ["k1"]},
        "fused": False,
        "reason": "t1, t12 cross",
        "tensors": [{"id": "t1", "bytes": 4}, {"id": "t12", "bytes": 8}],
        "other": None,
    }
    told = explanation(BODY, answer, {"t1": [r"a\1"], "t12": ["b"]})
    assert told.reason == r"a\1, b cross"
    assert told.summary == ""
    at_load = {**answer, "reason": "n1 runs once at load", "tensors": []}
    assert explanation(BODY, at_load, {"n1": ["halved"]}).reason == (
        "halved runs once at load"
    )
    assert explanation(BODY, at_load, {}).reason == "n1 runs once at load"


def test_disturbed_times_are_not_compared() -> None:
    """Where other processes had a part in a time, it is shown without a ratio."""
    body = samples.plan_body(layers=1)
    fair = {figure.label: figure.note for figure in plan_figures(body)}
    assert fair["ONNX Runtime"].startswith("ours 1.41")
    body["measured"]["reference"]["contended"] = True
    told = {figure.label: figure.note for figure in plan_figures(body)}
    assert told["ONNX Runtime"] == "disturbed: not compared"
    assert told["Without fusion"] == fair["Without fusion"]


def test_the_runtime_alone_is_compared_with_the_plan_alone() -> None:
    """Beside other plans, a plan finds their data in the caches, or its own gone."""
    body = samples.plan_body(layers=1)
    plan, reference = (body["measured"][name] for name in ("plan", "reference"))
    body["measured"]["alone"] = {**plan, "seconds": reference["seconds"] / 2}
    told = {figure.label: figure.note for figure in plan_figures(body)}
    assert told["ONNX Runtime"].startswith("ours 2")
    assert told["Without fusion"].startswith("ours 1.64")


def test_less_is_better() -> None:
    """A change has a sign, and says whether it is one for the better."""
    less = total("Time", 2.0, 1.0, duration)
    assert (less.change, less.is_better) == ("\N{MINUS SIGN}50.0 %", True)
    assert total("Time", 1.0, 1.0, duration).change == "equal"
    assert total("Time", None, 1.0, duration).is_better is None


def test_fusion_saves_what_is_never_written() -> None:
    """A kernel of five operators keeps the four tensors between them."""
    saved = against_no_fusion(BODY, kernel_rows(BODY, {}))
    softmax = next(one for one in saved if one.row.name == "k3")
    assert softmax.separate == 5
    assert softmax.kept_bytes == 4 * 128 * 256 * 4


def test_counters_come_from_the_scrape() -> None:
    """Lookups by result and the hit rate; foreign lines are passed over."""
    text = (
        "# HELP fuseplan_lookups_total Plans\n"
        'fuseplan_lookups_total{result="hit"} 3.0\n'
        'fuseplan_lookups_total{result="never_tuned"} 1.0\n'
        'fuseplan_queue_depth{queue="tune.cpu"} 2.0\n'
        'fuseplan_measurement_failures{cause="compile"} 4.0\n'
    )
    counters = read_counters(text)
    assert counters.hit_rate == pytest.approx(0.75)
    assert counters.misses == {"never_tuned": 1}
    assert counters.waiting == {"tune.cpu": 2}
    assert counters.failures == {"compile": 4}
    assert read_counters("").hit_rate is None


def test_people_who_look_are_not_counted_as_builds(used: TestClient) -> None:
    """Opening pages leaves the hit rate alone."""
    before = read_counters(used.get("/metrics").text).lookups
    for path in (f"/jobs/{JOB}", f"/plans/{KEY}", f"/plans/{KEY}/roofline"):
        assert used.get(path).status_code == 200
    assert read_counters(used.get("/metrics").text).lookups == before


def test_a_strip_stays_within_its_drawing() -> None:
    """Every sample is a dot inside, also when all are equal."""
    for values in ((1e-6, 2e-6, 9e-6), (1e-6, 1e-6)):
        drawn = strip(values)
        assert drawn is not None
        assert all(0 <= x <= WIDTH for x, _ in drawn.dots)
    assert strip(()) is None


def test_a_late_sample_leaves_the_others_apart() -> None:
    """One run that took 100 times as long does not make one dot of all others."""
    drawn = strip([1.0e-3, 1.2e-3, 1.4e-3, 0.1])
    assert drawn is not None
    first, second, third, last = (x for x, _ in drawn.dots)
    assert min(second - first, third - second) > 10
    assert last > third
    assert drawn.middle == "1.30 ms"
    assert "logarithmic" in drawn.text


def test_the_cache_page_leads_to_plans_and_their_jobs(used: TestClient) -> None:
    """Every key with its evidence, and a way to what found it."""
    text = used.get("/cache").text
    assert f'href="/plans/{KEY}"' in text
    assert f'href="/jobs/{JOB}"' in text
    assert re.search(r"measured</span>", text)
    page = used.get(f"/plans/{KEY}").text
    assert "Key part, graph" in page
    assert "given out" in page
