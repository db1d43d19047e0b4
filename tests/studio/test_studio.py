"""The studio in a browser: every view, a person's whole way, by keys alone, wide and narrow."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from urllib.parse import quote

import pytest
from pages import (
    EACH,
    NAMES,
    NARROW,
    PATIENCE,
    WIDE,
    drop,
    name_of,
    skip_without_browser,
    tiles_of,
)
from rest import column, verdict

from polyseme import load
from polyseme.studio.access import Tokens, new_token
from polyseme.studio.refit import RefitStatus, Refitting

expect = skip_without_browser()

# ---------------------------------------------------------------------- the whole way


@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_all_tasks_can_be_done_with_the_keyboard_alone(studio, place, size):
    app = studio(size)
    page = app.page
    app.open()

    # Find a label, and see its two senses.
    app.press("/")
    page.keyboard.type("appl")
    app.press("Enter")
    expect(app.find("heading", "apple")).to_be_visible()
    expect(app.find("heading", "2 senses")).to_be_visible()
    senses = app.find("button", "Sense…")
    expect(senses).to_have_count(2)
    texts = " ".join(senses.all_inner_texts())
    assert "phone" in texts
    assert "knife" in texts
    app.until("studio.map.islands === 2 && studio.map.highlighted > 0")

    # Give a picture, and see its tags and where it lands.
    app.go("Ask")
    with page.expect_file_chooser() as chooser:
        app.enter(app.find("button", "Choose a picture…"))
    chooser.value.set_files(place / "photos" / "beach" / "0.png")
    expect(page.get_by_role("region", name="Where it lands")).to_be_visible()
    rows = page.get_by_role("region", name="Suggested tags").locator("ol.ranking > li")
    expect(rows).to_have_count(15)

    # Review ten items.
    app.go("Review")
    app.press("/")
    page.keyboard.type("wave")
    app.press("Enter")
    tiles = tiles_of(page, "wave")
    expect(tiles).to_have_count(len(NAMES))
    expect(tiles.first).to_be_focused()
    for number in range(EACH):
        assert name_of(tiles.nth(number)).startswith("beach")
    for number in range(10):
        expect(tiles.nth(number)).to_be_focused()
        app.press("y" if number < EACH else "n")
    app.wait_until_saved()
    expect(page.get_by_text("10 answered")).to_be_visible()
    expect(page.locator('.tile[data-answer="no"]')).to_have_count(6)

    # Add a tag.
    app.go("Vocabulary")
    app.enter(app.find("button", "Add tags"))
    expect(app.find("dialog", "Add tags")).to_be_visible()
    app.press("Tab")
    expect(app.find("textbox", "Tag sets…")).to_be_focused()
    page.keyboard.type("deckchair, sand, sea")
    expect(page.get_by_text("New: deckchair.")).to_be_visible()
    app.enter(app.find("button", "Add 1 tag set"))
    expect(app.find("heading", "deckchair")).to_be_visible()

    # Watch it rank, answer, and undo.
    app.enter(page.locator("article").get_by_role("link", name="Review"))
    app.ready("review")
    tiles = tiles_of(page, "deckchair")
    expect(tiles.first).to_be_focused()
    for number in range(EACH):
        assert name_of(tiles.nth(number)).split("/")[0] == "beach"
    app.press("y")
    app.wait_until_saved()
    expect(tiles.first).to_have_attribute("data-answer", "yes")
    app.press("u")
    app.wait_until_saved()
    expect(tiles.first).to_have_attribute("data-answer", "open")
    expect(tiles.first).to_be_focused()

    # Export, to a file and beside the pictures.
    export = page.locator("summary", has_text="Export")
    app.enter(export)
    with page.expect_download() as download:
        app.enter(app.find("button", "Answers…"))
    lines = download.value.path().read_text("utf-8").splitlines()
    verdicts = [json.loads(line) for line in lines]
    assert column(verdicts, "answer") == [True] * EACH + [False] * 6
    assert set(column(verdicts, "label")) == {"wave"}
    assert verdicts[0]["rank"] == 1
    app.enter(export)
    app.enter(app.find("button", "Sidecars…"))
    expect(page.get_by_text("4 tags would be written")).to_be_visible()
    app.enter(app.find("button", "Write the files"))
    expect(page.get_by_text("4 tags written beside 4 items.")).to_be_visible()
    sidecars = (place / "photos").rglob("*.xmp")
    assert [path.parent.name for path in sidecars] == ["beach"] * EACH


# ---------------------------------------------------------------------- every view


def test_the_map_shows_every_label_of_every_document_and_the_tags_they_share(studio, place):
    app = studio()
    page = app.page
    app.open()
    n_dots = sum(len(set(tags)) for tags in known_documents(place))
    assert app.state("map.n") == n_dots
    assert app.state("map.renderer") in ("webgl2", "2d")
    expect(page.get_by_text("All known tag sets")).to_be_visible()
    app.until("studio.map.full > 0 && studio.map.captions > 0")

    chart = page.get_by_role("application")
    chart.focus()
    app.press("+")
    app.until("studio.map.scale > 1.2")
    app.press("0")
    app.until("Math.abs(studio.map.scale - 1) < 0.05")
    app.press("v")
    expect(app.find("heading", "Tags they share")).to_be_visible()
    app.press("Escape")
    expect(app.find("heading", "All known tag sets")).to_be_visible()

    app.press("Enter")
    expect(page.get_by_text("Known tag set", exact=False).first).to_be_visible()
    app.find("link", "Ask with these tags").click()
    app.ready("ask")
    expect(page.locator("ol.ranking > li").first).to_be_visible()


def known_documents(place: Path) -> list[tuple[str, ...]]:
    """Return what the saved model knows."""
    store = load(place / "toy").store_
    return [store.document(row) for row in range(len(store.ids))]


def test_the_ask_view_completes_tags_explains_scores_and_names_unknown_tags(studio, place):
    app = studio()
    page = app.page
    app.open("#/ask")
    expect(page.get_by_role("slider", name="Precision")).to_be_disabled()
    box = page.get_by_role("combobox", name="Add a tag")
    for tag in ("sand", "canoe, red"):
        box.fill(tag)
        box.press("Enter")
    expect(page.get_by_text("No known tag set holds “canoe, red”")).to_be_visible()
    likeliest = page.locator("ol.ranking > li")
    beach = {"sea", "sun", "shell", "towel", "wave"}
    expect(likeliest.first).to_be_visible()
    for rank in range(3):
        assert likeliest.nth(rank).locator("a").inner_text() in beach
    likeliest.first.get_by_role("button", name="Because").click()
    expect(page.get_by_role("list", name="Parts of the logit")).to_be_visible()
    likeliest.first.get_by_role("button", name="Add").click()
    expect(page.get_by_role("list", name="Tags given").get_by_role("listitem")).to_have_count(3)

    # A picture that is dropped goes with its tags, each a field of its own.
    with page.expect_response(re.compile("/suggest")) as response:
        drop(page, place / "photos" / "street" / "1.png")
    assert response.value.json()["unknown_tags"] == ["canoe, red"]
    expect(page.get_by_role("img", name="The picture 1.png")).to_be_visible()
    slider = page.get_by_role("slider", name="Precision")
    expect(slider).to_be_enabled()
    slider.fill("90")
    expect(page.get_by_text("Of the tags shown, 90\u00a0% should be true.")).to_be_visible()
    drop(page, place / "toy" / "model.safetensors")
    expect(page.get_by_text("This model takes a picture")).to_be_visible()


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_reviewing_an_item_accepts_and_rejects_suggestions_and_adds_tags(studio, size):
    app = studio(size)
    page = app.page
    app.open("#/review/item")
    tiles = page.locator(".board a.tile")
    expect(tiles).to_have_count(len(NAMES))
    expect(tiles.first).to_contain_text("office/0.png")  # names that repeat have their folders
    n_lines = """(name) => {
        name.style.width = "6em";
        const end = document.createRange();
        end.selectNodeContents(name.lastChild);
        return end.getClientRects().length;
    }"""
    assert tiles.first.locator(".tile-name").evaluate(n_lines) == 1  # no line ends inside 0.png
    fits = page.locator(".picture img").first.evaluate(
        "(element) => getComputedStyle(element).objectFit"
    )
    assert fits == "contain"
    search = page.get_by_role("searchbox", name="Search items")
    search.fill("parasol")
    expect(tiles).to_have_count(1)
    search.fill("")
    expect(tiles).to_have_count(len(NAMES))
    page.get_by_role("link", name="beach/3.png").click()
    suggested = page.get_by_role("list", name="Suggested tags").get_by_role("listitem")
    expect(page.get_by_role("list", name="Own tags").get_by_role("listitem")).to_have_count(2)
    expect(suggested.first).to_be_focused()
    app.press("y", "n", "u")
    app.wait_until_saved()
    assert suggested.nth(0).get_attribute("data-answer") == "yes"
    assert suggested.nth(1).get_attribute("data-answer") == "open"
    box = page.get_by_role("combobox", name="Add a tag")
    box.fill("deckchair")
    box.press("Enter")
    expect(suggested.filter(has_text="deckchair")).to_have_attribute("data-answer", "yes")
    app.wait_until_saved()
    app.find("link", "Next item").click()
    expect(page.locator("figcaption")).to_contain_text("street/3.png")
    app.find("link", "Previous item").click()
    expect(page.locator("figcaption")).to_contain_text("beach/3.png")
    expect(suggested.filter(has_text="deckchair")).to_have_attribute("data-answer", "yes")


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_click_on_a_picture_opens_it_without_a_verdict(studio, size):
    app = studio(size)
    page = app.page
    app.open("#/review/label/sand")
    tiles = tiles_of(page, "sand")
    second = tiles.nth(1)
    dialog = app.find("dialog", "sand")
    second.get_by_role("button", name="Open").click()
    expect(dialog.locator("img")).to_be_visible()
    expect(page.get_by_text("0 answered")).to_be_visible()
    for number in range(EACH):
        assert tiles.nth(number).get_attribute("data-answer") == "open"
    fits_inside = "(element) => element.scrollWidth <= element.clientWidth"
    assert dialog.evaluate(fits_inside)  # nothing is cut off, on a phone neither
    dialog.get_by_role("button", name="Yes", exact=True).click()
    expect(second).to_have_attribute("data-answer", "yes")
    app.press("Escape")
    expect(dialog).to_have_count(0)

    # By keys: Enter opens what has the focus, and f closes it.
    expect(tiles.nth(2)).to_be_focused()
    app.press("Enter")
    expect(dialog.locator("img")).to_be_visible()
    app.press("f")
    expect(dialog).to_have_count(0)
    second.locator("img").click(button="right")
    expect(second).to_have_attribute("data-answer", "yes")
    # Pressed again, a button takes its answer back.
    second.get_by_role("button", name="Yes", exact=True).click()
    expect(second).to_have_attribute("data-answer", "open")
    app.wait_until_saved()


def test_a_picture_can_be_opened_without_the_right_to_review(studio, tmp_path):
    path = tmp_path / "tokens.json"
    reader = new_token(path, "ann", "read")
    app = studio(may_say=("401",), tokens=Tokens.read(path))
    page = app.page
    page.goto(app.base)
    page.get_by_role("dialog").get_by_label("Token", exact=True).fill(reader)
    app.press("Enter")
    app.ready("map")
    app.open("#/review/label/sand")
    tiles_of(page, "sand").first.get_by_role("button", name="Open").click()
    expect(app.find("dialog", "sand").locator("img")).to_be_visible()


# ---------------------------------------------------------------------- texts

SEA = "Fishermen mend their nets;\ngulls ride the waves <b>today</b>"
SEA_TAGS = {"water", "coast", "boat"}
LONG = "<script>throw 1</script>\n\n# Morning\n\n" + "Gulls over the sea.\n\n" * 400


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_pictures_without_tags_are_one_click_away(studio, size):
    app = studio(size)
    page = app.page
    app.open()
    app.find("link", f"{len(NAMES) - 1} pictures without tags").click()
    app.ready("review")
    tiles = page.locator(".board a.tile")
    expect(tiles).to_have_count(len(NAMES) - 1)
    expect(tiles.filter(has_text="beach/3.png")).to_have_count(0)
    expect(app.find("radio", f"Without tags ({len(NAMES) - 1})")).to_be_checked()
    tiles.first.click()
    expect(page.get_by_text(f"1 of {len(NAMES) - 1}", exact=True)).to_be_visible()
    app.find("link", "Items without tags").click()
    expect(tiles).to_have_count(len(NAMES) - 1)
    page.reload()
    app.ready("review")
    expect(tiles).to_have_count(len(NAMES) - 1)
    app.choose(f"All ({len(NAMES)})")
    expect(tiles).to_have_count(len(NAMES))
    app.choose("With answers (0)")
    expect(page.get_by_text("No item matches")).to_be_visible()
    app.open("#/review")
    expect(app.find("link", f"{len(NAMES) - 1} pictures without tags")).to_be_visible()


def test_there_is_no_link_to_pictures_without_tags_where_all_have_tags(studio):
    app = studio(own_tags=dict.fromkeys(NAMES, ("sand",)))
    app.open("#/review")
    expect(app.find("heading", "Least certain")).to_be_visible()
    expect(app.page.get_by_text("without tags")).to_have_count(0)


def test_errors_are_items_on_which_model_and_tags_disagree(studio):
    correct_tags = {name: ("sand",) if "beach" in name else ("desk",) for name in NAMES}
    app = studio(own_tags=correct_tags)
    app.open("#/review/label/sand")
    app.choose("Errors")
    expect(app.find("heading", "No “sand” looks wrong")).to_be_visible()

    wrong_tags = correct_tags | {"beach/1.png": ("desk",), "street/2.png": ("sand",)}
    del wrong_tags["beach/3.png"]  # without tags it is not wrong: nobody has tagged it yet
    app = studio(own_tags=wrong_tags)
    app.open("#/review/label/sand")
    app.choose("Errors")
    tiles = tiles_of(app.page, "sand")
    expect(tiles).to_have_count(2)
    expect(tiles.filter(has_text="2.png")).to_contain_text("has it, doubtful")
    expect(tiles.filter(has_text="1.png")).to_contain_text("perhaps missing")


def test_two_tabs_see_each_other_s_verdicts(studio):
    first = studio()
    second = studio(beside=first)
    for tab in (first, second):
        tab.open("#/review/label/sand")
        expect(tiles_of(tab.page, "sand").first).to_be_focused()
    first_tiles = tiles_of(first.page, "sand")
    second_tiles = tiles_of(second.page, "sand")
    first.press("y")
    expect(second_tiles.first).to_have_attribute("data-answer", "yes")
    expect(second_tiles.first).to_contain_text("Yes, in another tab")
    expect(second.page.get_by_text("0 answered")).to_be_visible()
    expect(first_tiles.first).not_to_contain_text("in another tab")
    first.press("u")
    expect(second_tiles.first).to_have_attribute("data-answer", "open")

    # An item's tags and the list of answers are brought up to date, too.
    first.wait_until_saved()
    item = first_tiles.first.locator(".tile-name").get_attribute("title")
    first.open(f"#/review/item/{item.replace('/', '%2F')}")
    second.open("#/model")
    answers = second.page.get_by_role("region", name="Answers").get_by_role("listitem")
    expect(answers).to_have_count(1)
    row = first.page.get_by_role("list", name="Suggested tags").get_by_role("listitem").first
    row.get_by_role("button", name="Yes").click()
    expect(answers).to_have_count(2)


def test_a_verdict_that_a_tab_has_not_seen_is_overwritten_only_on_request(studio):
    first = studio(may_say=("Failed to load resource",))
    second = studio(beside=first, may_say=("Failed to load resource",))
    for tab in (first, second):
        tab.open("#/review/label/sand")
        expect(tiles_of(tab.page, "sand").first).to_be_focused()
    second_tiles = tiles_of(second.page, "sand")
    second.page.route("**/verdicts?after=*", lambda route: route.abort())
    first.press("y")
    first.wait_until_saved()
    second.press("n")
    line = second.page.locator(".unsent .conflict")
    expect(line).to_contain_text("answered Yes in another tab meanwhile.")
    expect(second_tiles.first).to_have_attribute("data-answer", "yes")
    line.get_by_role("button", name="Leave Yes").click()
    expect(line).to_have_count(0)
    second.press("u")  # the answer of the other tab is not this one's to undo
    expect(second.page.get_by_role("button", name="Undo")).to_be_disabled()
    expect(second_tiles.first).to_have_attribute("data-answer", "yes")
    second.press("ArrowLeft", "n")  # it is seen now, and answered otherwise on purpose
    expect(second_tiles.first).to_have_attribute("data-answer", "no")
    second.wait_until_saved()

    # Now the other one has not seen it; answered all the same, the former answer is replaced.
    first.page.route("**/verdicts?after=*", lambda route: route.abort())
    second.press("y")
    second.wait_until_saved()
    tiles = tiles_of(first.page, "sand")
    first.press("n")
    line = first.page.locator(".unsent .conflict")
    line.get_by_role("button", name="No all the same").click()
    expect(tiles.nth(1)).to_have_attribute("data-answer", "no")
    first.wait_until_saved()
    expect(line).to_have_count(0)
    second.open("#/model")
    answers = second.page.get_by_role("region", name="Answers").get_by_role("listitem")
    expect(answers).to_have_count(4)
    expect(answers.filter(has_text="replaced by a later answer")).to_have_count(2)
    expect(answers.get_by_role("button", name="Undo")).to_have_count(2)


@pytest.mark.parametrize("label", ["AC/DC", "a#b", "50%"])
def test_links_to_labels_of_any_name_work(studio, label):
    app = studio(may_say=("404",))
    page = app.page
    body = {"verdicts": [verdict("beach/0.png", label)]}
    page.request.post(f"{app.base}/v1/models/toy/learn", data=body)
    app.open("#/review/item/beach%2F0.png")
    app.find("link", label).click()
    expect(app.find("heading", label)).to_be_visible()
    expect(tiles_of(page, label)).to_have_count(len(NAMES) - 1)
    page.reload()
    app.ready("review")
    expect(app.find("heading", label)).to_be_visible()


def test_a_verdict_that_could_not_be_saved_can_be_sent_again(studio):
    app = studio(may_say=("Failed to load resource",))
    page = app.page
    app.open("#/review/label/sand")
    tiles = tiles_of(page, "sand")
    expect(tiles.first).to_be_focused()
    page.route("**/learn", lambda route: route.abort())
    app.press("y")
    expect(page.get_by_role("alert").get_by_text("1 answer not saved.")).to_be_visible()
    page.unroute("**/learn")
    app.find("button", "Try again").click()
    app.wait_until_saved()
    expect(page.get_by_text("not saved")).to_have_count(0)
    expect(tiles.first).to_have_attribute("data-sending", "false")


def test_labels_are_renamed_blocked_and_added_and_changes_are_undone(studio):
    app = studio()
    page = app.page
    app.open("#/vocabulary")
    page.get_by_role("searchbox", name="Search labels").fill("lamp")
    row = page.get_by_role("list", name="Labels").get_by_role("listitem")
    expect(row).to_have_count(1)
    row.get_by_role("link").click()
    app.find("button", "Rename").click()
    page.get_by_role("textbox", name="New name").fill("lantern")
    app.find("dialog", "Rename").get_by_role("button", name="Rename").click()
    expect(app.find("heading", "lantern")).to_be_visible()
    expect(page.get_by_text("Also: lamp")).to_be_visible()

    # While the page's clock stands still, what a toast offers does not go.
    page.clock.install()
    page.clock.pause_at(4_102_444_800_000)
    app.find("button", "Block").click()
    expect(page.get_by_text("“lantern” is no longer suggested.")).to_be_visible()
    expect(app.find("button", "Unblock")).to_be_visible()
    undo = page.get_by_role("status").get_by_role("button", name="Undo")
    expect(undo).to_have_count(1)  # of the latest change, not of the renaming before it
    undo.click()
    expect(app.find("button", "Block")).to_be_visible()
    page.clock.resume()

    app.choose("Worth adding")
    page.get_by_role("button", name="Add parasol").click()
    expect(app.find("heading", "parasol")).to_be_visible()
    expect(page.get_by_text("1 yes, 0 no")).to_be_visible()

    # A tag without known company is not taken.
    app.find("button", "Add tags").click()
    app.find("textbox", "Tag sets…").fill("canoe, paddle")
    expect(page.get_by_text("holds no known tag")).to_be_visible()
    expect(app.find("button", "Add 1 tag set")).to_be_disabled()
    app.choose("By name")
    expect(page.get_by_text("it was started without")).to_be_visible()


def test_labels_are_merged_removed_and_added_by_items(studio):
    app = studio()
    page = app.page
    app.open("#/vocabulary/lamp")
    app.find("button", "Merge…").click()
    merge = app.find("dialog", "Merge").get_by_role("button", name="Merge", exact=True)
    expect(merge).to_be_disabled()
    page.get_by_role("combobox", name="Merge into").fill("desk")
    page.get_by_role("option", name="desk").click()
    expect(page.get_by_text("“lamp” goes, “desk” stays")).to_be_visible()
    merge.click()
    expect(app.find("heading", "desk")).to_be_visible()
    expect(page.get_by_text("Also: lamp")).to_be_visible()

    app.find("button", "Remove…").click()
    remove = app.find("dialog", "Remove for good").get_by_role("button", name="Remove")
    expect(remove).to_be_disabled()
    page.get_by_role("textbox", name="Type desk to confirm").fill("Desk")
    remove.click()
    expect(app.find("heading", "No label chosen")).to_be_visible()

    app.find("button", "Add tags").click()
    app.choose("By items")
    page.get_by_role("textbox", name="New tag").fill("canoe")
    expect(page.get_by_text("Choose items that should carry the tag.")).to_be_visible()
    page.get_by_role("button", name="beach/0.png").click()
    page.get_by_role("button", name="beach/1.png").click()
    expect(page.get_by_text("2 items chosen.")).to_be_visible()
    app.find("dialog", "Add tags").get_by_role("button", name="Add", exact=True).click()
    expect(app.find("heading", "canoe")).to_be_visible()
    expect(page.get_by_text("2 yes, 0 no")).to_be_visible()

    # What is known by these answers alone takes them along.
    app.find("button", "Rename").click()
    page.get_by_role("textbox", name="New name").fill("sail/boat")
    app.find("dialog", "Rename").get_by_role("button", name="Rename").click()
    expect(app.find("heading", "sail/boat")).to_be_visible()
    expect(page.get_by_text("2 yes, 0 no")).to_be_visible()
    app.find("button", "Merge…").click()
    page.get_by_role("combobox", name="Merge into").fill("wave")
    page.get_by_role("option", name="wave").click()
    merge.click()
    expect(app.find("heading", "wave")).to_be_visible()
    expect(page.get_by_text("Also: canoe, sail/boat")).to_be_visible()
    expect(page.get_by_text("2 yes, 0 no")).to_be_visible()


def test_labels_that_may_be_the_same_are_merged_together(studio, place):
    """Two pairs are spelled alike; a third label is used once."""
    tagger = load(place / "toy")
    tagger.rename("shell", "Waves").rename("lamp", "Desks")
    tagger.add_documents([["sand", "jellyfish"]])
    tagger.save(place / "toy")
    app = studio()
    page = app.page
    app.open("#/vocabulary")
    app.choose("Perhaps the same")
    merge = page.get_by_role("button", name=re.compile("^Merge"))
    expect(merge).to_be_disabled()
    spelled = page.get_by_role("region", name="Spelled alike")
    expect(spelled.get_by_role("checkbox")).to_have_count(2)
    expect(spelled.get_by_text("spelling 0.89, use")).to_have_count(2)
    boxes = spelled.get_by_role("checkbox").all()
    for box in boxes:
        box.check()
    stays = spelled.get_by_role("listitem").first.get_by_role("link").last
    gone = stays.inner_text()
    spelled.get_by_role("button", name=re.compile("^Keep")).first.click()
    expect(stays).not_to_have_text(gone)
    expect(spelled.get_by_role("checkbox", checked=True)).to_have_count(2)
    expect(merge).to_have_text("Merge 2 pairs")
    merge.click()
    expect(page.get_by_text("2 pairs of labels were merged.")).to_be_visible()
    expect(spelled).to_have_count(0)
    vocabulary = load(place / "toy").vocabulary_
    assert len({vocabulary.resolve(name) for name in ("wave", "Waves", "desk", "Desks")}) == 2
    assert gone in vocabulary.aliases

    app.choose("Labels")
    page.get_by_role("combobox", name="Kind").select_option("once")
    expect(page.get_by_role("listitem")).to_have_count(1)
    expect(page.get_by_role("link", name="jellyfish")).to_be_visible()


def test_the_model_view_shows_quality_restores_versions_and_reports_a_refused_reload(studio, place):
    app = studio(may_say=("422",))
    page = app.page
    app.open("#/vocabulary/sand")
    app.find("button", "Block").click()
    expect(app.find("button", "Unblock")).to_be_visible()
    app.open("#/model")
    expect(page.get_by_role("img", name="Reliability")).to_be_visible()
    expect(page.get_by_role("row", name="Tags of an item E-MAP")).to_contain_text("%")
    versions = page.get_by_role("region", name="Versions").get_by_role("listitem")
    expect(versions).to_have_count(2)
    expect(versions.first).to_contain_text("2 · block sand")
    page.get_by_role("button", name="Roll back to version 1").click()
    app.find("dialog", "Back to version 1?").get_by_role("button", name="Roll back").click()
    expect(versions).to_have_count(3)
    expect(versions.first).to_contain_text("in use")

    file = place / "toy" / "model.safetensors"
    file.write_text("{}")
    app.find("button", "Reload").click()
    expect(page.get_by_role("alert").get_by_text("A reload was refused")).to_be_visible()


def test_the_model_view_compares_the_model_with_simple_methods(studio, place):
    """The figures are those of `validation_.baselines`, for seen and for unseen labels."""
    baselines = load(place / "toy").validation_.baselines
    ridge = baselines["ridge regression"]
    frequent = baselines["most frequent labels"]
    app = studio()
    app.open("#/model")
    measures = app.page.get_by_role("region", name="Measures")
    expect(measures).to_contain_text("what simple methods reach on the same items")
    simple = measures.get_by_role("row", name="a linear model (ridge regression)")
    guessed = measures.get_by_role("row", name="the most frequent tags, for every item")
    for row, (example_map, _, unseen_example_map, _) in ((simple, ridge), (guessed, frequent)):
        expect(row).to_have_count(2)  # below E-MAP and below C-MAP
        cells = row.first.get_by_role("cell")
        expect(cells.first).to_have_text(percent_text(example_map))
        expect(cells.last).to_have_text(percent_text(unseen_example_map))
    _, concept_map, _, unseen_concept_map = ridge
    cells = simple.last.get_by_role("cell")
    expect(cells.first).to_have_text(percent_text(concept_map))
    expect(cells.last).to_have_text(percent_text(unseen_concept_map))


def percent_text(share: float) -> str:
    """Return a share as the studio shows it."""
    return f"{round(100 * share)} %"


def test_a_refit_is_refused_with_a_sentence_or_shows_its_progress(studio, monkeypatch):
    app = studio(may_say=("422",))
    page = app.page
    app.open("#/model")
    app.find("button", "Refit").click()
    expect(page.get_by_text("that this model was fitted to are not among")).to_be_visible()

    may_end = threading.Event()

    def run(refitting, *_):
        refitting.status = RefitStatus("running", 1, 2)
        may_end.wait(PATIENCE / 1000)
        refitting.status = RefitStatus("done", 2, 2)

    monkeypatch.setattr(Refitting, "_run", run)
    monkeypatch.setattr("polyseme.studio.refit.training_data", lambda *_: {})
    app.find("button", "Refit").click()
    expect(page.get_by_text("Refitting: 1 round of 2.")).to_be_visible()
    expect(app.find("button", "Refit")).to_be_disabled()
    may_end.set()
    expect(page.get_by_text("The model was refitted.")).to_be_visible()


# ---------------------------------------------------------------------- tokens


def test_the_scope_of_a_token_limits_what_the_studio_offers(studio, tmp_path):
    path = tmp_path / "tokens.json"
    reader = new_token(path, "ann", "read")
    reviewer = new_token(path, "bob", "review")
    app = studio(may_say=("401",), tokens=Tokens.read(path))
    page = app.page
    page.goto(app.base)
    field = page.get_by_role("dialog", name="A token, please").get_by_label("Token", exact=True)
    expect(field).to_be_focused()
    field.fill("not-a-token")
    field.press("Enter")
    dialog = page.get_by_role("dialog", name="Another token, please")
    dialog.get_by_label("Token", exact=True).fill(reader)
    dialog.get_by_role("button", name="Continue").click()
    app.ready("map")

    app.open("#/review/label/sand")
    expect(page.get_by_text("your token lacks the scope “review”")).to_be_visible()
    tile = tiles_of(page, "sand").first
    expect(tile.get_by_role("button", name="Yes", exact=True)).to_be_disabled()
    expect(tile.locator("img")).to_have_attribute("src", re.compile("^blob:"))
    app.press("y")
    expect(tile).to_have_attribute("data-answer", "open")
    app.open("#/vocabulary/sand")
    expect(app.find("button", "Add tags")).to_be_disabled()
    expect(app.find("button", "Remove…")).to_be_disabled()
    app.open("#/model")
    expect(app.find("button", "Reload")).to_be_disabled()

    page.evaluate("(token) => sessionStorage.setItem('polyseme.token', token)", reviewer)
    app.open("#/review/label/sand")
    page.reload()
    app.ready("review")
    expect(tile).to_be_focused()
    app.press("y")
    app.wait_until_saved()
    app.open("#/model")
    expect(page.get_by_role("region", name="Answers")).to_contain_text("by bob")


@pytest.mark.parametrize("label", ["AC/DC", "a//b/rename", "..", "100%", "what?#"])
def test_a_label_of_any_name_can_be_viewed_renamed_blocked_and_removed(studio, place, label):
    tagger = load(place / "toy")
    tagger.add_documents([[label, "sand"]])
    tagger.save(place / "toy")
    app = studio()
    page = app.page
    name = quote(label, safe="")
    app.open(f"#/map/label/{name}")
    expect(page.get_by_role("heading", name=label, exact=True)).to_be_visible()
    app.open(f"#/review/label/{name}")
    expect(page.get_by_role("list", name=f"Items for {label}")).to_be_visible()
    app.open(f"#/vocabulary/{name}")
    app.find("button", "Rename").click()
    page.get_by_role("textbox", name="New name").fill("rock/roll")
    app.find("dialog", "Rename").get_by_role("button", name="Rename").click()
    expect(app.find("heading", "rock/roll")).to_be_visible()
    expect(page.get_by_text(f"Also: {label}")).to_be_visible()
    app.find("button", "Block").click()
    expect(app.find("button", "Unblock")).to_be_visible()
    app.find("button", "Remove…").click()
    page.get_by_role("textbox", name="Type rock/roll to confirm").fill("rock/roll")
    app.find("dialog", "Remove for good").get_by_role("button", name="Remove").click()
    expect(app.find("heading", "No label chosen")).to_be_visible()
