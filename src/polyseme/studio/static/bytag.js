// @ts-check
/**
 * Review by tag: choose the tag.
 *
 * In: labels and questions of the service. Out: links to the boards of tags.
 */

import { add, clear, h } from "./dom.js";
import { isAbort } from "./api.js";
import { failed, loading, plural, probabilityText } from "./parts.js";
import { searchBox } from "./labelbox.js";
import { hashOf } from "./cards.js";
import { hasPictures, picture, untaggedLink } from "./items.js";

/** @typedef {import("./api.js").Label} Label */
/** @typedef {import("./api.js").Question} Question */
/** @typedef {import("./app.js").Context} Context */

const CARDS = 12; // tags that are shown
const QUESTIONS = 60; // among which the least certain tags are found
const ENOUGH = 10; // answers; a tag with more needs no further ones first

/**
 * Show tags to choose from; returns what unmounts them.
 * @param {HTMLElement} stage
 * @param {Context} context
 */
export function chooseTag(stage, context) {
  const chooser = new TagChooser(stage, context);
  chooser.showUnseen();
  chooser.showUncertain();
  return () => chooser.control.abort();
}

/** How far a probability is from undecided. @param {number} probability */
const certainty = (probability) => Math.abs(probability - 0.5);

/** @param {Label} label */
const countAnswers = ({ verdicts }) => verdicts.yes + verdicts.no;

class TagChooser {
  /**
   * @param {HTMLElement} stage
   * @param {Context} context
   */
  constructor(stage, context) {
    this.context = context;
    this.control = new AbortController();
    const { kinds } = context.model;
    this.unseenKinds = ["unseen", "oov"].filter((kind) => kinds[kind] > 0);
    this.unseen = h("div.tag-cards", loading("Looking for tags worth asking about…"));
    this.uncertain = h("div.tag-cards", loading());
    this.compose(stage);
    context.shortcuts([{ keys: "/", does: "search a tag" }]);
  }

  /** Lay the page out; the cards follow when they are read. @param {HTMLElement} stage */
  compose(stage) {
    const { api, model, navigate } = this.context;
    const openTag = (/** @type {string} */ label) => navigate(hashOf("review/label", label));
    const untagged = untaggedLink(model);
    const search = searchBox({
      api,
      name: "Tag to review",
      placeholder: "Search a tag",
      choose: openTag,
    });
    add(stage,
      h("p.lead",
        "Choose a tag, and say yes or no to the items that may carry it. Every answer counts at once.",
      ),
      search.element,
      untagged && h("div.row", untagged),
      this.unseenKinds.length > 0 &&
        tagSection(
          "Unseen and new tags",
          "The model has seen no items with these tags, so a few answers help them most. The worst ranked come first.",
          this.unseen,
        ),
      tagSection(
        "Least certain",
        "The model cannot decide on some items of these tags.",
        this.uncertain,
      ),
    );
  }

  /** Show the unseen and new tags that need answers most. */
  async showUnseen() {
    try {
      const pages = await Promise.all(this.unseenKinds.map((kind) => this.readLabels(kind)));
      const labels = pages.flat();
      labels.sort(compareNeed);
      const cards = labels.slice(0, CARDS).map((label) => unseenCard(label));
      clear(this.unseen, cards.length ? cards : h("p.muted", "All of them are blocked."));
    } catch (error) {
      if (!isAbort(error))
        clear(this.unseen,
          failed(error, () => this.showUnseen()),
        );
    }
  }

  /** @param {string} kind @returns {Promise<Label[]>} */
  async readLabels(kind) {
    const { api } = this.context;
    const params = { kind, blocked: false, limit: 200 };
    const { labels } = await api.get(api.model("labels"), { params, signal: this.control.signal });
    return labels;
  }

  /** Show the tags on some items of which the model is least certain. */
  async showUncertain() {
    const { api } = this.context;
    const body = { label: null, k: QUESTIONS, strategy: "active" };
    try {
      const { questions } = await api.post(api.model("ask"), body, { signal: this.control.signal });
      const cards = leastCertain(questions).map((question) => this.uncertainCard(question));
      clear(this.uncertain, cards.length ? cards : h("p.muted", "Nothing left to ask."));
    } catch (error) {
      if (!isAbort(error))
        clear(this.uncertain,
          failed(error, () => this.showUncertain()),
        );
    }
  }

  /** @param {Question} question */
  uncertainCard({ label, item, probability }) {
    const { context } = this;
    return tagCard(
      label,
      `probability ${probabilityText(probability)}`,
      hasPictures(context.model) && picture(context, item, 256),
    );
  }
}

/**
 * A section with cards of tags.
 * @param {string} title
 * @param {string} text why these are shown
 * @param {HTMLElement} cards
 */
function tagSection(title, text, cards) {
  return h("section", { aria_label: title }, h("h2", title), h("p.muted", text), cards);
}

/**
 * A tag as a link to its board.
 * @param {string} label
 * @param {string} note below its name
 * @param {any} [image]
 */
function tagCard(label, note, image) {
  const href = hashOf("review/label", label);
  return h("a.tag-card", { href }, image, h("strong", label), h("span.muted", note));
}

/** @param {Label} label */
function unseenCard(label) {
  const nAnswers = countAnswers(label);
  const note = nAnswers ? plural(nAnswers, "answer") : plural(label.count, "tag set");
  return tagCard(label.label, note);
}

/**
 * Tags with few answers come first, then those that are ranked worst, then frequent ones.
 * @param {Label} a
 * @param {Label} b
 */
function compareNeed(a, b) {
  const byAnswers = Math.min(countAnswers(a), ENOUGH) - Math.min(countAnswers(b), ENOUGH);
  const NOT_MEASURED = 2; // above every quality, so that these come last
  const byQuality = (a.quality_unseen ?? NOT_MEASURED) - (b.quality_unseen ?? NOT_MEASURED);
  return byAnswers || byQuality || b.count - a.count;
}

/**
 * Return the least certain question of each tag, the least certain tags first.
 * @param {Question[]} questions
 */
function leastCertain(questions) {
  /** @type {Map<string, Question>} */
  const questionByLabel = new Map();
  for (const question of questions) {
    const former = questionByLabel.get(question.label);
    if (!former || certainty(question.probability) < certainty(former.probability)) {
      questionByLabel.set(question.label, question);
    }
  }
  return [...questionByLabel.values()]
    .sort((a, b) => certainty(a.probability) - certainty(b.probability))
    .slice(0, CARDS);
}
