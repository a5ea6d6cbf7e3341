"""Pages as a browser without scripts gets them."""

from __future__ import annotations

import json
import re

import pytest
from fastapi.testclient import TestClient

from tests.service.dashboard.samples import STARTED

KEY, DEEP_KEY = "1" * 64, "4" * 64
JOB, FAILED, RUNNING, DEEP = (f"0000{name:0>8}" for name in "1234")
PAGES = (
    *("/", "/jobs", "/devices", "/devices/cpu", "/cache", "/cache?target=cpu"),
    *("/submit", "/submit?target=h200"),
    *(f"/jobs/{JOB}", f"/jobs/{RUNNING}", f"/plans/{KEY}"),
    *(f"/jobs/{JOB}/trials", f"/jobs/{JOB}/trials?family=reduction&failure=none"),
    *(f"/jobs/{JOB}/trials/5", f"/jobs/{JOB}/analysis"),
    *(f"/plans/{KEY}/roofline", f"/plans/{KEY}/roofline?job={JOB}"),
    *(f"/plans/{KEY}/kernels/k3", f"/plans/{KEY}/kernels/k3?job={JOB}"),
    *(f"/plans/{KEY}/explain?a=n0&b=n3", f"/plans/{KEY}/explain?a=n6&b=n7&job={JOB}"),
    *(f"/plans/{KEY}/diff", f"/plans/{KEY}/diff?other={DEEP_KEY}&job={JOB}"),
)


@pytest.mark.parametrize("path", [*PAGES, "/jobs?state=failed", f"/plans?key={KEY}"])
def test_pages_answer_under_a_strict_policy(used: TestClient, path: str) -> None:
    """Every page loads, nothing from elsewhere, nothing inline, never framed."""
    answer = used.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "http://" not in re.sub(
        r"<code>.*?</code>", "", answer.text, flags=re.DOTALL
    )


@pytest.mark.parametrize("path", ["/", "/jobs"])
def test_an_unused_service_says_what_to_do(empty: TestClient, path: str) -> None:
    """Empty states show the command that fills them, with this service's address."""
    text = empty.get(path).text
    assert "Nothing was submitted yet" in text
    assert "http://testserver/v1/plans?target=cpu" in text


def test_figures_are_those_of_the_api(used: TestClient) -> None:
    """Trials of the list, and gap of the page, are the API's own numbers."""
    job = used.get(f"/v1/jobs/{JOB}").json()
    assert job["progress"]["trials"] == 60
    row = re.search(f'{JOB}".*?</tr>', used.get("/jobs").text, flags=re.DOTALL)
    assert row is not None
    assert '<td class="n">60</td>' in row.group()
    assert "1.50 %" in used.get(f"/jobs/{JOB}").text


def test_a_job_page_speaks_the_submitters_names(used: TestClient) -> None:
    """The job's page has names, the plan's page by key has none."""
    assert "/encoder/layer.0/matmul_0" in used.get(f"/jobs/{JOB}").text
    assert "/encoder/layer.0" not in used.get(f"/plans/{KEY}").text


def test_names_are_escaped(used: TestClient) -> None:
    """A title with markup is text, on every page that shows it."""
    for path in ("/", "/jobs", f"/jobs/{DEEP}"):
        text = used.get(path).text
        assert "<b>model" not in text
        assert "deep &lt;b&gt;model" in text


def test_a_failed_job_says_why(used: TestClient) -> None:
    """List and page show the problem's text."""
    assert "k3: the device was lost" in used.get("/jobs?state=failed").text
    assert "k3: the device was lost" in used.get(f"/jobs/{FAILED}").text


def test_long_plans_come_in_pages(used: TestClient) -> None:
    """480 kernels: 200 on a page, sorted as asked, and no page above 1 MB."""
    first = used.get(f"/jobs/{DEEP}")
    assert len(first.content) < 1_000_000
    assert first.text.count('<tr id="k') == 200
    last = used.get(f"/jobs/{DEEP}?start=400").text
    assert last.count('<tr id="k') == 80
    slowest = used.get(f"/plans/{DEEP_KEY}?order=time").text
    assert re.search(r'<tr id="(k\d+)">', slowest).group(1) != "k0"  # type: ignore[union-attr]


@pytest.mark.parametrize("part", ["head", "tables"])
def test_live_parts_are_fragments(used: TestClient, part: str) -> None:
    """What is refreshed is the same markup, without a page around it."""
    whole = used.get(f"/jobs/{JOB}").text
    text = used.get(f"/jobs/{JOB}/{part}").text
    assert "<html" not in text
    heading = '<dl class="figures">' if part == "head" else '<section id="kernels">'
    assert heading in text
    assert heading in whole


@pytest.mark.parametrize(
    ("path", "status", "title"),
    [
        ("/jobs/nobody", 404, "There is no such job"),
        (f"/plans/{'e' * 64}", 404, "There is no such plan"),
        ("/plans/zzz", 404, "This is not a plan key"),
        ("/jobs?state=asleep", 422, "The request is wrong"),
        (f"/plans/{KEY}/kernels/k999", 404, "This plan has no such kernel"),
        (f"/plans/{KEY}/explain?a=n0&b=nobody", 404, "The graph has no such node"),
        (f"/jobs/{JOB}/trials/1", 404, "There is no such job"),
        ("/devices/abacus", 404, "There is no such device"),
        ("/static/000000000000/page.js", 404, "There is no such file"),
    ],
)
def test_problems_have_pages(
    used: TestClient, path: str, status: int, title: str
) -> None:
    """An error is a page with title, reason and a way back."""
    answer = used.get(path)
    assert answer.status_code == status
    assert f"<h1>{title}</h1>" in answer.text
    assert 'href="/jobs"' in answer.text


def test_the_partition_is_json_of_few_boxes(used: TestClient) -> None:
    """The drawing's data is bounded, and in the names of the job's submitter."""
    view = used.get(f"/plans/{DEEP_KEY}/partition?job={DEEP}").json()
    assert view["kernels"] == 480
    assert 0 < len(view["boxes"]) <= 60
    assert used.get(f"/plans/{DEEP_KEY}/partition?limit=301").status_code == 422
    opened = used.get(f"/plans/{DEEP_KEY}/partition?job={DEEP}&expand=0-11").json()
    assert "/encoder/layer.0" in json.dumps(opened)


def test_files_may_be_kept_for_ever(used: TestClient) -> None:
    """Every file that a page names is there, with an immutable address."""
    addresses = set(re.findall(r'"(/static/[^"]+)"', used.get(f"/jobs/{JOB}").text))
    assert len(addresses) >= 9
    for address in addresses:
        answer = used.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]


def test_moments_are_told_in_utc(used: TestClient) -> None:
    """The page shows when a job was submitted, and its zone."""
    assert f"submitted {STARTED:%Y-%m-%d %H:%M:%S} UTC" in used.get(f"/jobs/{JOB}").text
