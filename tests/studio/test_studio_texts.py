"""Texts in the studio, in a browser: asked about, reviewed and read."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pages import NARROW, WIDE, drop, skip_without_browser, tiles_of

from polyseme.media import front_matter

expect = skip_without_browser()
SEA = "Fishermen mend their nets;\ngulls ride the waves <b>today</b>"
SEA_TAGS = {"water", "coast", "boat"}
LONG = "<script>throw 1</script>\n\n# Morning\n\n" + "Gulls over the sea.\n\n" * 400


@pytest.fixture
def long_note(notes) -> str:
    """The name of a note without tags that is long, and holds what looks like HTML."""
    name = "sea-12.md"
    (notes / "notes" / name).write_text(LONG, "utf-8")
    return name


def paste(page: Any, text: str) -> None:
    """Paste a text where no box has the focus."""
    page.evaluate(
        """(text) => {
            const clipboardData = new DataTransfer();
            clipboardData.setData("text", text);
            const paste = { clipboardData, bubbles: true, cancelable: true };
            document.body.dispatchEvent(new ClipboardEvent("paste", paste));
        }""",
        text,
    )


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_ask_view_takes_texts_that_are_typed_pasted_or_dropped(studio, notes, notes_host, size):
    app = studio(size, host=notes_host)
    page = app.page
    app.open("#/ask")
    box = app.find("textbox", "Text")
    likeliest = page.locator("ol.ranking > li .rank-label a")
    expect(page.get_by_text("Give a text, some of its tags, or both.")).to_be_visible()
    expect(page.get_by_text("A row of numbers instead")).to_have_count(0)
    with page.expect_response(re.compile("/suggest")) as response:
        box.fill(SEA)
    assert response.value.request.headers["content-type"].startswith("multipart/form-data")
    expect(likeliest).not_to_have_count(0)
    assert set(likeliest.all_inner_texts()[:3]) == SEA_TAGS
    app.until("!studio.ask.busy")
    ranking = app.state("ask.suggestions")
    because = page.locator("ol.ranking > li").first.get_by_role("button", name="Because")
    because.click()
    expect(page.get_by_role("list", name="Parts of the logit")).to_be_visible()
    box.fill("  ")
    expect(page.get_by_text("Nothing asked yet")).to_be_visible()

    # What is pasted outside of a box is the text; another view and back, and it is still there.
    page.locator("h1").click()
    paste(page, SEA)
    expect(box).to_have_value(SEA)
    expect(likeliest).not_to_have_count(0)
    app.until("!studio.ask.busy")
    assert app.state("ask.suggestions") == ranking
    app.open("#/model")
    app.find("link", "Ask").click()
    app.ready("ask")
    expect(box).to_have_value(SEA)

    # A file takes the place of what was typed, and is shown as it is written.
    dropped = notes / "walk.md"
    dropped.write_text(SEA, "utf-8")
    drop(page, dropped)
    expect(box).to_have_count(0)
    region = app.find("region", "walk.md")
    expect(region).to_have_text(SEA, use_inner_text=True)
    expect(region.locator("*")).to_have_count(0)
    page_of_html = notes / "page.html"
    page_of_html.write_text(f"<!DOCTYPE html><p>{SEA}</p>", "utf-8")
    with page.expect_response(re.compile("/suggest")) as response:
        drop(page, page_of_html)
    assert response.value.ok
    expect(page.locator("figcaption")).to_contain_text("page.html")
    app.find("button", "Take page.html away").click()
    expect(box).to_have_value("")
    drop(page, notes / "toy" / "model.safetensors")
    expect(page.get_by_text("This model takes a text; this is application/json.")).to_be_visible()


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_texts_are_reviewed_by_keys_and_read_as_they_are_written(
    studio, notes_host, long_note, size
):
    app = studio(size, host=notes_host)
    page = app.page
    app.open("#/review/label/water")
    tiles = tiles_of(page, "water")
    tile = tiles.filter(has_text=long_note)
    lines = tile.locator(".page-lines")
    expect(lines).to_contain_text("<script>throw 1</script>")
    expect(lines).to_contain_text("Morning")
    expect(lines.locator("*")).to_have_count(0)
    assert lines.evaluate("(element) => getComputedStyle(element).overflow") == "hidden"
    frame, text = tile.locator(".picture").bounding_box(), lines.bounding_box()
    assert text["x"] + text["width"] <= frame["x"] + frame["width"]
    assert text["y"] + text["height"] <= frame["y"] + frame["height"]
    assert text["width"] > 0.8 * frame["width"]  # a page, and no words in its middle

    tile.get_by_role("button", name="Open").click()
    dialog = app.find("dialog", "water")
    region = dialog.get_by_role("region", name=long_note)
    expect(region).to_contain_text("<script>throw 1</script>")
    assert dialog.evaluate("(element) => element.scrollWidth <= element.clientWidth")
    region.focus()
    before = page.locator(".tile.current .tile-name").inner_text()
    app.press("ArrowDown")  # scrolls the text, and does not go to the next item
    page.wait_for_function("() => document.querySelector('.large .text-page').scrollTop > 0")
    assert page.locator(".tile.current .tile-name").inner_text() == before
    app.press("y")
    expect(tile).to_have_attribute("data-answer", "yes")
    app.press("Escape", "n", "u")
    app.wait_until_saved()
    verdicts = notes_host.snapshot.tagger.verdicts_.standing()
    assert [(verdict.item, verdict.answer) for verdict in verdicts] == [(long_note, True)]


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_page_of_a_text_has_all_of_it_beside_its_tags(studio, notes_host, long_note, size):
    app = studio(size, host=notes_host)
    page = app.page
    app.open()
    app.find("link", "4 texts without tags").click()
    app.ready("review")
    expect(page.locator(".board a.tile")).to_have_count(4)
    app.find("link", long_note).click()
    region = app.find("region", long_note)
    expect(region).to_have_text(LONG.strip(), use_inner_text=True)
    expect(region.locator("*")).to_have_count(0)
    height, full_height = region.evaluate("(page) => [page.clientHeight, page.scrollHeight]")
    assert height < 844 < full_height
    suggested = page.get_by_role("list", name="Suggested tags").get_by_role("listitem")
    expect(suggested.first).to_be_focused()
    app.press("y", "n")
    app.wait_until_saved()

    # The accepted tag goes into the note itself, once a person has agreed.
    page.get_by_text("Export", exact=True).click()
    page.get_by_role("button", name="Tags in the files").click()
    expect(page.get_by_text("1 tag would be written for 1 item")).to_be_visible()
    app.find("button", "Write the files").click()
    expect(page.get_by_text("1 tag written for 1 item.")).to_be_visible()
    accepted = suggested.first.locator(".answer-label").inner_text()
    assert front_matter.read_tags(notes_host.collection.file_of(long_note)).tags == [accepted]
    app.find("link", "Why these tags?").click()
    app.ready("ask")
    expect(app.find("region", long_note)).to_contain_text("Gulls over the sea.")


def test_a_text_that_cannot_be_read_is_told_by_its_tags(studio, notes_host):
    notes_host.collection.file_of("sea-00.md").unlink()
    app = studio(may_say=("422",), host=notes_host)
    app.open("#/review/item")
    tile = app.page.locator(".board a.tile").filter(has_text="sea-00.md")
    expect(tile).to_contain_text("coast, boat")
    tile.click()
    expect(app.page.get_by_text("The file of this item cannot be shown.")).to_be_visible()


# ---------------------------------------------------------------------- pictures without tags
