// @ts-check
/**
 * One label of the vocabulary: what it means, how well it is ranked, and what can be done to it.
 *
 * In: its card. Out: elements; renaming, merging, blocking and removing as changes.
 */

import { h } from "./dom.js";
import { bar, count, dialog, dialogEnd, fact, field, form, icon, kindBadge } from "./parts.js";
import { percent, plural, submitButton } from "./parts.js";
import { labelBox } from "./labelbox.js";
import { hashOf } from "./cards.js";

/** @typedef {import("./api.js").LabelCard} LabelCard */
/** @typedef {import("./api.js").Sense} Sense */

export const MAX_LENGTH = 200; // characters of a label

/** @param {string} name */
export const labelHash = (name) => hashOf("vocabulary", name);

/** Return the spelling of a label: case and white space make no difference. @param {string} text */
export const spellingOf = (text) => text.trim().replace(/\s+/g, " ").toLowerCase();

export class LabelView {
  /**
   * @param {import("./vocabulary.js").Vocabulary} vocabulary
   * @param {LabelCard} card
   */
  constructor(vocabulary, card) {
    this.vocabulary = vocabulary;
    this.api = vocabulary.context.api;
    this.card = card;
    this.name = card.label;
    this.element = h("article.stack",
      this.head(),
      this.facts(),
      h("p.muted.small", qualitySentence(card)),
      this.senses(),
      this.companions(),
      this.similar(),
    );
  }

  /* ---- what is shown ---- */

  /** The name of the label, its kind and other names, and what can be done with it. */
  head() {
    const { kind, blocked, aliases, implies } = this.card;
    const blockedTitle = "blocked: never suggested";
    return h("header.stack.tight",
      h("div.row",
        h("h2.label-name", this.name),
        kindBadge(kind),
        blocked && h("span.kind.kind-blocked", { title: blockedTitle }, "blocked"),
      ),
      aliases.length > 0 && h("p.muted.small", `Also: ${aliases.join(", ")}`),
      implies.length > 0 && h("p.muted.small", `Implies: ${implies.join(", ")}`),
      h("div.row",
        h("a.button", { href: hashOf("review/label", this.name) }, icon("review"), "Review"),
        h("a.button", { href: hashOf("map/label", this.name) }, icon("map"), "On the map"),
      ),
      this.buttons(),
    );
  }

  buttons() {
    const disabled = !this.vocabulary.mayAdmin;
    const blockText = this.card.blocked ? "Unblock" : "Block";
    return h("div.row",
      h("button", { disabled, onclick: () => this.rename() }, "Rename"),
      h("button", { disabled, onclick: () => this.merge() }, "Merge…"),
      h("button", { disabled, onclick: () => this.block() }, blockText),
      h("button.danger", { disabled, onclick: () => this.remove() }, "Remove…"),
    );
  }

  facts() {
    const { quality, quality_unseen, verdicts } = this.card;
    const { yes, no } = verdicts;
    const answers = yes + no ? `${count(yes)} yes, ${count(no)} no` : "none yet";
    return h("dl.facts",
      fact("Tag sets", count(this.card.count)),
      fact("Answers", answers),
      quality !== null && fact("C-MAP, held out", percent(quality)),
      quality_unseen !== null && fact("C-MAP when made unseen", percent(quality_unseen)),
    );
  }

  senses() {
    const { senses } = this.card;
    if (!senses.length) return null;
    const title = senses.length > 1 ? `${count(senses.length)} senses` : "One sense";
    return h("section.stack.tight", h("h3", title), senses.map(senseFold));
  }

  companions() {
    const { companions } = this.card;
    if (!companions.length) return null;
    const rows = companions.map(({ label, share }) =>
      h("li", labelLink(label), bar(share), h("span.vcol", percent(share))),
    );
    return h("section.stack.tight", h("h3", "Most often together with"), h("ul.companions", rows));
  }

  similar() {
    const { similar } = this.card;
    if (!similar.length) return null;
    const chips = similar.map(({ label, reason }) =>
      h("a.chip", { href: labelHash(label), title: `alike in ${reason}` }, label),
    );
    return h("section.stack.tight", h("h3", "Perhaps the same"), h("div.chips", chips));
  }

  /* ---- what can be done ---- */

  /**
   * Ask the service for a change of this label.
   * @param {string} verb "rename", "merge" or "block"
   * @param {any} body
   */
  post(verb, body) {
    return this.api.post(this.api.model("labels", this.name, verb), body);
  }

  async rename() {
    const { name } = this;
    const newName = await askName(name);
    if (!newName || newName === name) return;
    const run = () => this.post("rename", { name: newName });
    await this.vocabulary.change(`“${name}” is now “${newName}”.`, run, {
      next: labelHash(newName),
    });
  }

  async merge() {
    const { name } = this;
    const into = await dialog("Merge", (close) => this.mergeForm(close));
    if (!into) return;
    const run = () => this.post("merge", { into });
    await this.vocabulary.change(`“${name}” was merged into “${into}”.`, run, {
      next: labelHash(into),
    });
  }

  /** The form that asks for the label that stays. @param {(into?: string) => void} close */
  mergeForm(close) {
    const { api, name } = this;
    const status = h("p.muted", { role: "status" }, "Choose the label that stays.");
    const submit = submitButton("Merge", true);
    let target = "";
    const choose = (/** @type {string} */ label) => {
      target = label === name ? "" : label;
      submit.disabled = !target;
      status.textContent = target
        ? `“${name}” goes, “${target}” stays and takes over its tag sets and answers.`
        : "A label cannot be merged into itself.";
    };
    const placeholder = "Search the label that stays";
    const box = labelBox({ api, name: "Merge into", placeholder, keep: true, choose });
    const chips = this.card.similar
      .slice(0, 5)
      .map(({ label }) => h("button.chip", { onclick: () => choose(label) }, label));
    return form(
      () => target && close(target),
      h("p", `Items and tag sets with “${name}” count for another label from now on.`),
      box.element,
      chips.length > 0 && h("div.chips", chips),
      status,
      dialogEnd(close, submit),
    );
  }

  async block() {
    const { name } = this;
    const { blocked } = this.card;
    const message = blocked ? `“${name}” is suggested again.` : `“${name}” is no longer suggested.`;
    await this.vocabulary.change(message, () => this.post("block", { undo: blocked }));
  }

  async remove() {
    const { api, name } = this;
    const isSure = await dialog("Remove for good", (close) => removeForm(name, close));
    if (!isSure) return;
    const run = () => api.del(api.model("labels", name));
    await this.vocabulary.change(`“${name}” was removed.`, run, { next: "#/vocabulary" });
  }
}

/** @param {string} label */
export const labelLink = (label) => h("a", { href: labelHash(label) }, label);

/** @param {Sense} sense */
function senseFold({ words, count: nSets, example_sets }) {
  return h("details.fold",
    h("summary", h("span.grow", words.join(", ")), h("span.muted.small", plural(nSets, "tag set"))),
    h("ul",
      example_sets.map((tags) => h("li.small", tags.join(", "))),
    ),
  );
}

/**
 * Ask for a new name; nothing where the person cancels.
 * @param {string} name
 * @returns {Promise<string | undefined>}
 */
function askName(name) {
  return dialog("Rename", (close) => {
    const input = h("input", {
      value: name,
      required: true,
      maxlength: MAX_LENGTH,
      name: "name",
      autocomplete: "off",
      aria_label: "New name",
    });
    return form(
      () => close(input.value.trim()),
      h("p", `“${name}” gets another name. The old name still finds it.`),
      field("New name", input),
      dialogEnd(close, submitButton("Rename")),
    );
  });
}

/**
 * The form that asks to type the name before a label is removed.
 * @param {string} name
 * @param {(isSure?: boolean) => void} close
 */
function removeForm(name, close) {
  const submit = h("button.danger", { type: "submit", disabled: true }, "Remove");
  const check = () => {
    submit.disabled = spellingOf(input.value) !== spellingOf(name);
  };
  const input = h("input", {
    autocomplete: "off",
    aria_label: `Type ${name} to confirm`,
    oninput: check,
  });
  return form(
    () => close(!submit.disabled),
    h("p", `“${name}” leaves the vocabulary and all known tag sets, and is not suggested again.`),
    h("p", "To only keep it out of suggestions, block it."),
    field(`Type “${name}” to confirm`, input),
    dialogEnd(close, submit),
  );
}

/** @param {LabelCard} card */
function qualitySentence({ kind, quality, quality_unseen }) {
  const measured = kind === "seen" ? quality : quality_unseen;
  if (measured === null || measured === undefined) {
    return "How well this label is ranked was not measured: too few held-out items carry it.";
  }
  return `${judgementOf(measured)} when all are ranked for it.`;
}

/** Say in words how well a label is ranked. @param {number} quality C-MAP, from 0 to 1 */
function judgementOf(quality) {
  if (quality >= 0.6) return "Items that carry it stand high";
  if (quality >= 0.3) return "Items that carry it stand fairly high";
  return "Items that carry it are hard to find";
}
