"""Source in colours."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from service.dashboard.highlight import highlight
from tests.service.dashboard.samples import SOURCE


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=200))
def test_nothing_is_lost_and_everything_is_escaped(text: str) -> None:
    """Without its tags the markup is the text again, and it holds no other tag."""
    lines = highlight(text)
    bare = "\n".join(re.sub(r'<span class="c-[a-z]+">|</span>', "", x) for x in lines)
    assert "<" not in bare
    assert html.unescape(bare) == text


def test_each_kind_of_word_has_its_class() -> None:
    """Comments, keywords, types, numbers and calls are told apart."""
    text = "\n".join(highlight(SOURCE))
    assert '<span class="c-comment">// One line of a softmax.</span>' in text
    assert '<span class="c-comment">/* not &amp; scaled */</span>' in text
    assert (
        '<span class="c-keyword">const</span> <span class="c-type">int</span>' in text
    )
    assert '<span class="c-call">exp</span>(x[i])' in text
    assert '<span class="c-number">0.5f</span>' in text


def test_a_long_comment_stays_within_its_lines() -> None:
    """Each line closes what it opens, so that lines can be numbered one by one."""
    for line in highlight("/* one\ntwo\nthree */ int x;"):
        assert line.count("<span") == line.count("</span>")
