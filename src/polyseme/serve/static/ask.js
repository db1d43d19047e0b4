// @ts-check
/**
 * The Ask view: which tags does this have, and why?
 *
 * In: a picture, a sound, a row of numbers or an item, and tags; `#/ask`, `#/ask/tags/A/B`,
 * `#/ask/item/ID`. Out: ranked tags with probabilities, evidence for each, and where it lands.
 */

import { clear, debounce, h } from "./dom.js";
import { isAbort } from "./api.js";
import {
  bar,
  empty,
  failed,
  iconButton,
  kindBadge,
  kindLegend,
  loading,
  percent,
  probabilityText,
} from "./parts.js";
import { chipBox } from "./chips.js";
import { intake } from "./intake.js";
import { landing } from "./landing.js";
import { evidenceOf } from "./evidence.js";
import { hashOf } from "./cards.js";

const SHOWN = 15; // tags when no precision is asked for
const MOST = 50; // tags when one is

/** @param {HTMLElement} root @param {import("./app.js").Context} context */
export function mount(root, context) {
  const view = new AskView(root, context);
  view.update(context.route);
  return view;
}

class AskView {
  /** @param {HTMLElement} root @param {import("./app.js").Context} context */
  constructor(root, context) {
    this.context = context;
    /**
     * @type {{tags: string[], file?: File, features?: number[], item?: string, precision: number}}
     */
    this.given = context.state.ask = context.state.ask || { tags: [], precision: 0 };
    this.asked = new AbortController();
    this.hook = /** @type {any} */ (window).__studio;
    this.hook.ask = { suggestions: [], unknown: [], place: null, busy: false };
    this.later = debounce(() => this.ask(), 180);
    this.chips = chipBox({
      api: context.api,
      tags: this.given.tags,
      change: (tags) => this.change({ tags }),
    });
    this.intake = intake({
      model: context.model,
      area: root,
      take: (content) =>
        this.change({ file: content.file, features: content.features, item: undefined }),
      complain: (text) => context.toast(text, { error: true }),
    });
    this.more = h("div.also", { hidden: true });
    this.slider = h("input", {
      type: "range",
      min: "0",
      max: "95",
      step: "5",
      aria_label: "Precision",
      oninput: () => this.slide(Number(this.slider.value)),
    });
    this.slider.value = String(this.given.precision);
    this.promise = h("p.muted.small", { role: "status" });
    this.level = h("output.level");
    this.results = h("section.results", { aria_label: "Suggested tags" });
    this.status = h("p.sr", { role: "status" });
    this.landing = landing(context);
    this.own = this.given.tags.join("/");
    this.compose(root);
    context.shortcuts([
      { keys: "/", does: "to the tag box" },
      { keys: "Enter", does: "take the tag" },
      { keys: "Backspace", does: "take the last tag away" },
    ]);
  }

  /** @param {HTMLElement} root */
  compose(root) {
    this.intake.show(this.given);
    clear(root,
      h("div.page.ask",
        h("div.ask-in",
          h("header", h("h1.headword", "Which tags does it have?"), h("p.muted", this.intro())),
          h("div.stack", this.chips.element, this.more),
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
    this.sayPrecision();
  }

  intro() {
    const { media } = this.context.model;
    return media === "image"
      ? "Give a picture, some of its tags, or both."
      : media === "audio"
        ? "Give a sound, some of its tags, or both."
        : "Give some of its tags, a row of numbers, or both.";
  }

  unmount() {
    this.asked.abort();
    this.later.cancel();
    this.intake.dispose();
    this.landing.dispose();
  }

  /** @param {import("./app.js").Route} route */
  update(route) {
    const [kind, ...values] = route.args;
    if (kind === "tags" && values.length) {
      this.chips.set(values, true);
      this.given.tags = values;
      if (values.join("/") !== this.own) this.clearThing();
    } else if (kind === "item" && values.length) {
      Object.assign(this.given, { item: values.join("/"), file: undefined, features: undefined });
      this.intake.show(this.given);
      this.picture(values.join("/"));
    }
    this.ask();
  }

  /** Show an item's picture, or let it be heard. @param {string} item */
  async picture(item) {
    const { api, model } = this.context;
    if (!model.collection?.has_media) return;
    try {
      const path = api.model("media", item);
      this.intake.picture(
        await api.media(model.collection.media === "image" ? `${path}?size=512` : path),
        model.collection.media,
      );
    } catch {
      // the name of the item is shown already
    }
  }

  clearThing() {
    Object.assign(this.given, { file: undefined, features: undefined, item: undefined });
    this.intake.show(this.given);
  }

  /** @param {any} fields */
  change(fields) {
    Object.assign(this.given, fields);
    this.own = this.given.tags.join("/");
    const hash = this.own
      ? `#/ask/tags/${this.given.tags.map(encodeURIComponent).join("/")}`
      : "#/ask";
    history.replaceState(null, "", hash);
    this.later();
  }

  /** Whether a precision can be asked for: it is promised of items, not of tags alone. */
  get precise() {
    return Boolean(this.given.file || this.given.features || this.given.item);
  }

  /** @param {number} precision */
  slide(precision) {
    this.given.precision = precision;
    this.sayPrecision();
    this.later();
  }

  sayPrecision() {
    const { model } = this.context;
    const p = this.precise ? this.given.precision / 100 : 0;
    const highest = model.quality?.highest_precision_unseen ?? null;
    const others = model.kinds.unseen + model.kinds.oov > 0;
    let text = `The ${SHOWN} likeliest tags are shown.`;
    if (p) text = `Of the tags shown, ${percent(p)} should be true.`;
    if (!this.precise) text += " A precision can be promised of an item, not of tags alone.";
    if (p && others && highest === 0)
      text += " Unseen tags are left out: nothing can be promised of them.";
    else if (p && others && highest !== null && p > highest)
      text += ` Unseen tags are left out: no more than ${percent(highest)} can be promised of them.`;
    this.promise.textContent = text;
    this.slider.disabled = !this.precise;
    this.level.textContent = p ? percent(p) : "not asked";
    this.slider.setAttribute("aria-valuetext", p ? percent(p) : "not asked");
  }

  get something() {
    return this.given.tags.length > 0 || this.given.file || this.given.features || this.given.item;
  }

  /** The body of a question about what was given. @param {Record<string, any>} options */
  body(options) {
    const { tags, file, features, item } = this.given;
    const fields = { tags, features, item, ...options };
    if (!file)
      return Object.fromEntries(
        Object.entries(fields).filter(
          ([, value]) =>
            value !== undefined && value !== null && !(Array.isArray(value) && !value.length),
        ),
      );
    const form = new FormData();
    form.append("file", file);
    for (const tag of tags) form.append("tags", tag);
    for (const [key, value] of Object.entries(options))
      if (value !== undefined && value !== null) form.append(key, String(value));
    return form;
  }

  async ask() {
    this.later.cancel();
    this.asked.abort();
    this.asked = new AbortController();
    const { signal } = this.asked;
    if (!this.something) return this.nothing();
    const { api } = this.context;
    this.hook.ask.busy = true;
    this.results.setAttribute("aria-busy", "true");
    if (!this.results.querySelector(".ranking")) clear(this.results, loading("Ranking tags…"));
    this.sayPrecision();
    const precision = this.precise && this.given.precision ? this.given.precision / 100 : undefined;
    try {
      const [answer] = await Promise.all([
        api.post(
          api.model("suggest"),
          this.body({ k: precision ? MOST : SHOWN + this.given.tags.length, precision }),
          { params: { place: true }, signal },
        ),
        this.complete(signal),
      ]);
      if (signal.aborted) return;
      this.show(answer);
      this.where(answer, signal);
    } catch (error) {
      if (isAbort(error) || signal.aborted) return;
      clear(this.results,
        failed(error, () => this.ask()),
      );
      this.landing.show(null, [], "");
    } finally {
      if (!signal.aborted) {
        this.hook.ask.busy = false;
        this.results.removeAttribute("aria-busy");
      }
    }
  }

  /** Tags that go with those given. @param {AbortSignal} signal */
  async complete(signal) {
    const { api } = this.context;
    const { tags } = this.given;
    this.more.hidden = !tags.length;
    if (!tags.length) return clear(this.more);
    /** @type {any[]} */
    let completions = [];
    try {
      completions = (
        await api.post(api.model("complete"), { tags, k: 6 }, { signal })
      ).suggestions.slice(0, 6);
    } catch (error) {
      if (isAbort(error)) return;
    }
    if (signal.aborted) return;
    this.more.hidden = !completions.length;
    clear(this.more,
      h("h2.minor", "Also complete"),
      h("div.chips",
        completions.map((completion) =>
          h("button.chip.chip-add", {
              aria_label: `Add ${completion.label}`,
              title: `${probabilityText(completion.probability)}, ${completion.kind}`,
              onclick: () => this.chips.put([completion.label]),
            },
            `+ ${completion.label}`,
          ),
        ),
      ),
    );
  }

  nothing() {
    this.sayPrecision();
    clear(this.more);
    this.more.hidden = true;
    this.landing.show(null, [], "");
    this.results.removeAttribute("aria-busy");
    clear(this.results,
      empty(
        "Nothing asked yet",
        "Type one or two tags and see what goes with them; the answer changes as you type.",
        h("button", { onclick: () => this.context.attempt(() => this.example()) },
          "Show an example",
        ),
      ),
    );
  }

  async example() {
    const { api } = this.context;
    const { labels } = await api.get(api.model("labels"), {
      params: { limit: 12, order: "count" },
    });
    if (labels.length) this.chips.put([labels[Math.min(labels.length - 1, 3)].label]);
  }

  /** @param {any} answer */
  show(answer) {
    const givenTags = new Set(this.given.tags.map((tag) => tag.toLowerCase()));
    const suggestions = answer.suggestions.filter(
      (/** @type {any} */ suggestion) => !givenTags.has(suggestion.label.toLowerCase()),
    );
    const unknown = answer.unknown_tags;
    this.chips.mark(unknown);
    this.status.textContent = suggestions.length
      ? `Likeliest: ${suggestions
          .slice(0, 3)
          .map(
            (/** @type {any} */ suggestion) =>
              `${suggestion.label} ${probabilityText(suggestion.probability)}`,
          )
          .join(", ")}`
      : "No tag is sure enough.";
    this.hook.ask = { suggestions, unknown, place: answer.place, busy: false };
    clear(this.results,
      h("header", h("h2", "Suggested tags"), h("p.muted.small", "with the probability of each")),
      unknown.length
        ? h("p.muted.small",
            `No known tag set holds ${unknown.map((/** @type {string} */ tag) => `“${tag}”`).join(", ")}, so ${unknown.length > 1 ? "they say" : "it says"} nothing here.`,
          )
        : null,
      suggestions.length
        ? [
            h("ol.ranking",
              suggestions.map((/** @type {any} */ suggestion) => this.row(suggestion)),
            ),
            kindLegend(suggestions.map((/** @type {any} */ suggestion) => suggestion.kind)),
          ]
        : empty("No tag is sure enough", "Ask for less precision to see more."),
    );
  }

  /** @param {any} suggestion */
  row(suggestion) {
    const why = h("div.why", { hidden: true });
    const because = h("button.quiet", {
        aria_expanded: "false",
        aria_label: `Because: why ${suggestion.label}?`,
        onclick: () => this.because(suggestion.label, because, why),
      },
      "because…",
    );
    return h("li",
      h("div.rank-row",
        h("span.rank-label",
          h("a", { href: hashOf("map/label", suggestion.label) }, suggestion.label),
          kindBadge(suggestion.kind),
        ),
        bar(suggestion.probability),
        h("span.rank-p", probabilityText(suggestion.probability)),
        because,
        iconButton("plus", `Add ${suggestion.label} to the tags`, {
          onclick: () => this.chips.put([suggestion.label]),
        }),
      ),
      why,
    );
  }

  /** @param {string} label @param {HTMLElement} button @param {HTMLElement} why */
  async because(label, button, why) {
    const isOpen = why.hidden;
    why.hidden = !isOpen;
    button.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) return;
    clear(why, loading("Adding up the evidence…"));
    const { api } = this.context;
    try {
      clear(why, evidenceOf(await api.post(api.model("explain"), this.body({ label, k: 5 }))));
    } catch (error) {
      clear(why, failed(error));
    }
  }

  /** @param {any} answer @param {AbortSignal} signal */
  async where(answer, signal) {
    const { api } = this.context;
    /** @type {any[]} */
    let neighbours = [];
    if (answer.place) {
      try {
        neighbours = (await api.post(api.model("neighbours"), this.body({ k: 6 }), { signal }))
          .neighbours;
      } catch (error) {
        if (isAbort(error)) return;
      }
    }
    if (!signal.aborted)
      this.landing.show(
        answer.place,
        neighbours,
        this.given.tags.length
          ? `Tags: ${this.given.tags.join(", ")}.`
          : this.given.file?.name || "A row of numbers.",
      );
  }
}
