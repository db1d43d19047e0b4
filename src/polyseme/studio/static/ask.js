// @ts-check
/**
 * The Ask view: which tags does this have, and why?
 *
 * In: a picture, a sound, a text, a row of numbers or an item, and tags; `#/ask`, `#/ask/tags/A/B`,
 * `#/ask/item/ID`. Out: ranked tags with probabilities, evidence for each, and where it lands.
 */

import { clear, debounce, h } from "./dom.js";
import { isAbort } from "./api.js";
import { bar, empty, failed, iconButton, kindBadge, kindLegend, loading } from "./parts.js";
import { percent, probabilityText } from "./parts.js";
import { ChipBox } from "./chips.js";
import { Intake } from "./intake.js";
import { Landing } from "./landing.js";
import { evidenceOf } from "./evidence.js";
import { hashOf } from "./cards.js";
import { medium } from "./items.js";

/** @typedef {import("./api.js").Neighbour} Neighbour */
/** @typedef {import("./api.js").Suggestion} Suggestion */
/** @typedef {import("./app.js").Context} Context */
/** @typedef {import("./app.js").Route} Route */
/**
 * What tags are asked for: at most one of file, features and item; a typed text is a file, too.
 * @typedef {object} Query
 * @property {string[]} tags
 * @property {File} [file]
 * @property {string} [typed]
 * @property {number[]} [features]
 * @property {string} [item] its id
 * @property {number} precision in percent; 0 for none
 */
/**
 * What the service answers to `suggest`.
 * @typedef {object} Answer
 * @property {Suggestion[]} suggestions
 * @property {string[]} unknown_tags
 * @property {{x: number, y: number} | null} place on the map
 */

const SHOWN = 15; // tags when no precision is asked for
const MAX_PRECISE = 50; // tags when one is
const COMPLETIONS = 6; // tags that go with those given
const NEIGHBOURS = 6; // known tag sets near the place
const NOTHING = { file: undefined, typed: undefined, features: undefined, item: undefined };
const KEYS = [
  { keys: "/", does: "to the tag box" },
  { keys: "Enter", does: "take the tag" },
  { keys: "Backspace", does: "take the last tag away" },
];
const INTROS = /** @type {Record<string, string>} */ ({
  image: "Give a picture, some of its tags, or both.",
  audio: "Give a sound, some of its tags, or both.",
  text: "Give a text, some of its tags, or both.",
});

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export function mount(root, context) {
  const view = new AskView(root, context);
  view.update(context.route);
  return view;
}

class AskView {
  /**
   * @param {HTMLElement} root
   * @param {Context} context
   */
  constructor(root, context) {
    this.context = context;
    /** @type {Query} */
    this.query = context.state.ask ??= { tags: [], precision: 0 };
    this.control = new AbortController();
    /** What tests read. */
    this.hook = /** @type {any} */ (window).__studio;
    this.hook.ask = { suggestions: [], unknown: [], place: null, busy: false };
    this.askSoon = debounce(() => this.ask(), 180);
    this.chips = new ChipBox({
      api: context.api,
      tags: this.query.tags,
      change: (tags) => this.change({ tags }),
    });
    this.intake = new Intake({
      model: context.model,
      area: root,
      take: (content) => this.change({ ...NOTHING, ...content }),
      complain: (text) => context.toast(text, { error: true }),
    });
    this.completions = h("div.also", { hidden: true });
    this.slider = h("input", {
      type: "range",
      min: "0",
      max: "95",
      step: "5",
      aria_label: "Precision",
      oninput: () => this.setPrecision(Number(this.slider.value)),
    });
    this.slider.value = String(this.query.precision);
    this.promise = h("p.muted.small", { role: "status" });
    this.level = h("output.level");
    this.results = h("section.results", { aria_label: "Suggested tags" });
    this.status = h("p.sr", { role: "status" });
    this.landing = new Landing(context);
    /** The tags that this page put in the address; other tags there come from a link. */
    this.tagsInAddress = this.query.tags.join("/");
    this.compose(root);
    context.shortcuts(KEYS);
  }

  unmount() {
    this.control.abort();
    this.askSoon.cancel();
    this.intake.dispose();
    this.landing.dispose();
  }

  /** Lay the page out. @param {HTMLElement} root */
  compose(root) {
    const { media } = this.context.model;
    const intro = INTROS[media] || "Give some of its tags, a row of numbers, or both.";
    this.intake.show(this.query);
    clear(root,
      h("div.page.ask",
        h("div.ask-in",
          h("header", h("h1.headword", "Which tags does it have?"), h("p.muted", intro)),
          h("div.stack", this.chips.element, this.completions),
          this.intake.element,
          h("div.precision",
            h("div.row.between", h("h2.minor", "Precision"), this.level),
            this.slider,
            this.promise,
          ),
        ),
        h("div.ask-out", this.status, this.results, this.landing.element),
      ),
    );
    this.drawPrecision();
  }

  /* ---- the query ---- */

  /** @param {Route} route */
  update(route) {
    const [kind, ...values] = route.args;
    const value = values.join("/");
    if (kind === "tags" && value) this.takeTags(values);
    if (kind === "item" && value) this.takeItem(value);
    this.ask();
  }

  /** @param {string[]} tags of the address */
  takeTags(tags) {
    this.chips.set(tags, true);
    this.query.tags = tags;
    if (tags.join("/") === this.tagsInAddress) return;
    Object.assign(this.query, NOTHING);
    this.intake.show(this.query);
  }

  /** @param {string} item */
  takeItem(item) {
    Object.assign(this.query, NOTHING, { item });
    this.intake.show(this.query);
    this.showMedium(item);
  }

  /** Show an item's picture or text, or let it be heard. @param {string} item */
  showMedium(item) {
    const { context } = this;
    if (context.model.collection?.has_media) this.intake.showMedium(medium(context, item));
  }

  /** Change the query, and ask again soon. @param {Partial<Query>} fields */
  change(fields) {
    Object.assign(this.query, fields);
    const { tags } = this.query;
    const path = tags.map(encodeURIComponent).join("/");
    this.tagsInAddress = tags.join("/");
    history.replaceState(null, "", path ? `#/ask/tags/${path}` : "#/ask");
    this.askSoon();
  }

  /** Whether an item is given, and not tags alone. */
  get hasItem() {
    const { file, features, item } = this.query;
    return Boolean(file || features || item);
  }

  /** The precision that is asked for, from 0 to 1; only items can be promised one. */
  get precision() {
    return this.hasItem ? this.query.precision / 100 : 0;
  }

  /** @param {number} percentage from 0, for none, to 95 */
  setPrecision(percentage) {
    this.query.precision = percentage;
    this.drawPrecision();
    this.askSoon();
  }

  drawPrecision() {
    const level = this.precision ? percent(this.precision) : "not asked";
    this.promise.textContent = this.promiseSentences().join(" ");
    this.slider.disabled = !this.hasItem;
    this.level.textContent = level;
    this.slider.setAttribute("aria-valuetext", level);
  }

  /** Return what the chosen precision promises, in sentences. */
  promiseSentences() {
    const { kinds, quality } = this.context.model;
    const { precision } = this;
    const shown = `The ${SHOWN} likeliest tags are shown.`;
    if (!this.hasItem)
      return [shown, "A precision can be promised for an item, not for tags alone."];
    if (!precision) return [shown];
    const promise = `Of the tags shown, ${percent(precision)} should be true.`;
    const highest = quality?.highest_precision_unseen ?? null;
    const hasUnseen = kinds.unseen + kinds.oov > 0;
    if (!hasUnseen || highest === null || precision <= highest) return [promise];
    const limit = highest ? `no more than ${percent(highest)}` : "no precision";
    return [promise, `Unseen tags are left out: the model can promise ${limit} for them.`];
  }

  /**
   * Return the body of a request about what is given: JSON, or a form with the file.
   * @param {Record<string, any>} options further fields; undefined ones are left out
   */
  body(options) {
    const { tags, file, features, item } = this.query;
    if (!file) {
      const fields = Object.entries({ features, item, ...options }).filter(hasValue);
      return Object.fromEntries(tags.length ? [["tags", tags], ...fields] : fields);
    }
    const form = new FormData();
    form.append("file", file);
    for (const tag of tags) form.append("tags", tag);
    for (const [name, value] of Object.entries(options).filter(hasValue)) {
      form.append(name, String(value));
    }
    return form;
  }

  /* ---- the answer ---- */

  /** Ask the service about the query, and show the answer unless the query changed meanwhile. */
  async ask() {
    this.askSoon.cancel();
    this.control.abort();
    this.control = new AbortController();
    const { signal } = this.control;
    this.drawPrecision();
    if (!this.query.tags.length && !this.hasItem) return this.showNothing();
    this.setBusy(true);
    if (!this.results.querySelector(".ranking")) clear(this.results, loading("Ranking tags…"));
    try {
      const [answer] = await Promise.all([this.readSuggestions(signal), this.complete(signal)]);
      if (signal.aborted) return;
      this.show(answer);
      this.showPlace(answer, signal);
    } catch (error) {
      if (isAbort(error) || signal.aborted) return;
      clear(this.results,
        failed(error, () => this.ask()),
      );
      this.landing.show(null, [], "");
    } finally {
      if (!signal.aborted) this.setBusy(false);
    }
  }

  /** @param {boolean} isBusy */
  setBusy(isBusy) {
    this.hook.ask.busy = isBusy;
    if (isBusy) this.results.setAttribute("aria-busy", "true");
    else this.results.removeAttribute("aria-busy");
  }

  /** @param {AbortSignal} signal @returns {Promise<Answer>} */
  readSuggestions(signal) {
    const { api } = this.context;
    const precision = this.precision || undefined;
    const k = precision ? MAX_PRECISE : SHOWN + this.query.tags.length;
    return api.post(api.model("suggest"), this.body({ k, precision }), {
      params: { place: true },
      signal,
    });
  }

  /** Show tags that go with those given. @param {AbortSignal} signal */
  async complete(signal) {
    const { tags } = this.query;
    const suggestions = tags.length ? await this.readCompletions(tags, signal) : [];
    if (signal.aborted) return;
    const chips = suggestions.map((suggestion) => this.completionChip(suggestion));
    this.completions.hidden = !chips.length;
    clear(this.completions, h("h2.minor", "Often together with these"), h("div.chips", chips));
  }

  /**
   * @param {string[]} tags
   * @param {AbortSignal} signal
   * @returns {Promise<Suggestion[]>} none where the service does not answer
   */
  async readCompletions(tags, signal) {
    const { api } = this.context;
    try {
      const body = { tags, k: COMPLETIONS };
      const { suggestions } = await api.post(api.model("complete"), body, { signal });
      return suggestions.slice(0, COMPLETIONS);
    } catch {
      return [];
    }
  }

  /** @param {Suggestion} suggestion */
  completionChip({ label, probability, kind }) {
    return h("button.chip.chip-add",
      {
        aria_label: `Add ${label}`,
        title: `${probabilityText(probability)}, ${kind}`,
        onclick: () => this.chips.add([label]),
      },
      `+ ${label}`,
    );
  }

  /** Show what to do, since nothing is asked. */
  showNothing() {
    const example = () => this.context.attempt(() => this.showExample());
    clear(this.completions);
    this.completions.hidden = true;
    this.landing.show(null, [], "");
    this.setBusy(false);
    clear(this.results,
      empty(
        "Nothing asked yet",
        "Type one or two tags and see what goes with them; the answer changes as you type.",
        h("button", { onclick: example }, "Show an example"),
      ),
    );
  }

  /** Ask with a frequent tag. */
  async showExample() {
    const { api } = this.context;
    const params = { limit: 4, order: "count" };
    const { labels } = await api.get(api.model("labels"), { params });
    if (labels.length) this.chips.add([labels[labels.length - 1].label]);
  }

  /**
   * Show suggestions but for the tags that are given, and mark unknown tags.
   * @param {Answer} answer
   */
  show({ suggestions, unknown_tags: unknown, place }) {
    const given = new Set(this.query.tags.map((tag) => tag.toLowerCase()));
    const others = suggestions.filter(({ label }) => !given.has(label.toLowerCase()));
    this.chips.mark(unknown);
    this.status.textContent = summaryOf(others);
    this.hook.ask = { suggestions: others, unknown, place, busy: false };
    clear(this.results,
      h("header", h("h2", "Suggested tags"), h("p.muted.small", "with the probability of each")),
      unknown.length > 0 && h("p.muted.small", unknownSentence(unknown)),
      others.length ? this.ranking(others) : noTag(),
    );
  }

  /** @param {Suggestion[]} suggestions */
  ranking(suggestions) {
    const rows = suggestions.map((suggestion) => this.makeRow(suggestion));
    return [h("ol.ranking", rows), kindLegend(suggestions.map(({ kind }) => kind))];
  }

  /**
   * A suggested tag: its bar, its probability, why it is suggested, and a button that takes it.
   * @param {Suggestion} suggestion
   */
  makeRow({ label, probability, kind }) {
    const why = h("div.why", { hidden: true });
    const because = h("button.quiet",
      {
        aria_expanded: "false",
        aria_label: `Because: why ${label}?`,
        onclick: () => this.toggleWhy(label, because, why),
      },
      "because…",
    );
    const plus = iconButton("plus", `Add ${label} to the tags`, {
      onclick: () => this.chips.add([label]),
    });
    return h("li",
      h("div.rank-row",
        h("span.rank-label",
          h("a", { href: hashOf("map/label", label) }, label),
          kind !== "seen" && kindBadge(kind),
        ),
        bar(probability),
        h("span.rank-p", probabilityText(probability)),
        because,
        plus,
      ),
      why,
    );
  }

  /**
   * Open the evidence for a tag, or close it.
   * @param {string} label
   * @param {HTMLElement} button that was pressed
   * @param {HTMLElement} why where the evidence is shown
   */
  async toggleWhy(label, button, why) {
    const isOpen = why.hidden;
    why.hidden = !isOpen;
    button.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) return;
    const { api } = this.context;
    clear(why, loading("Adding up the evidence…"));
    try {
      const evidence = await api.post(api.model("explain"), this.body({ label, k: 5 }));
      clear(why, evidenceOf(evidence));
    } catch (error) {
      clear(why, failed(error));
    }
  }

  /**
   * @param {Answer} answer
   * @param {AbortSignal} signal
   */
  async showPlace({ place }, signal) {
    const neighbours = place ? await this.readNeighbours(signal) : [];
    if (signal.aborted) return;
    this.landing.show(place, neighbours, this.subjectText());
  }

  /** What is asked about, in a few words. */
  subjectText() {
    const { tags, file, item } = this.query;
    if (tags.length) return `Tags: ${tags.join(", ")}.`;
    if (item) return `Item ${item}.`;
    return file?.name || "A row of numbers.";
  }

  /**
   * @param {AbortSignal} signal
   * @returns {Promise<Neighbour[]>} none where the service does not answer
   */
  async readNeighbours(signal) {
    const { api } = this.context;
    try {
      const body = this.body({ k: NEIGHBOURS });
      const { neighbours } = await api.post(api.model("neighbours"), body, { signal });
      return neighbours;
    } catch {
      return [];
    }
  }
}

/** @param {[string, any]} field */
const hasValue = ([, value]) => value !== undefined && value !== null;

/** @param {Suggestion[]} suggestions */
function summaryOf(suggestions) {
  if (!suggestions.length) return "No tag is likely enough.";
  const likeliest = suggestions.slice(0, 3);
  const texts = likeliest.map(
    ({ label, probability }) => `${label} ${probabilityText(probability)}`,
  );
  return `Likeliest: ${texts.join(", ")}`;
}

/** @param {string[]} tags */
function unknownSentence(tags) {
  const quoted = tags.map((tag) => `“${tag}”`).join(", ");
  const result = tags.length > 1 ? "they do not count here" : "it does not count here";
  return `No known tag set holds ${quoted}, so ${result}.`;
}

function noTag() {
  return empty("No tag is likely enough", "Ask for less precision to see more.");
}
