// @ts-check
/**
 * Vocabulary: all labels, what each means, and care for them.
 *
 * In: `#/vocabulary`, `#/vocabulary/NAME`. Out: labels renamed, merged, blocked, removed and added;
 * every change says what happened, and can be undone by restoring the version before it.
 */

import { add, clear, h } from "./dom.js";
import { confirmed, count, empty, failed, icon, loading, plural, segments } from "./parts.js";
import { askAddition } from "./addtags.js";
import { CandidateList, MergeList } from "./care.js";
import { LabelList } from "./labellist.js";
import { labelHash, LabelView } from "./labelview.js";

/** @typedef {import("./api.js").Version} Version */
/** @typedef {import("./app.js").Context} Context */
/** @typedef {import("./addtags.js").Prefill} Prefill */
/**
 * What follows a change.
 * @typedef {object} Sequel
 * @property {string} [next] where to go on
 * @property {() => Promise<any>} [revert] how to undo it, where that is not by its version
 */

const SECTIONS = [
  ["labels", "Labels"],
  ["candidates", "Worth adding"],
  ["merges", "Perhaps the same"],
];
const LISTS = { labels: LabelList, candidates: CandidateList, merges: MergeList };
const KEYS = [
  { keys: "/", does: "search labels" },
  { keys: "↑ ↓", does: "move in the list" },
  { keys: "Enter", does: "open a label" },
];

/**
 * @param {HTMLElement} root
 * @param {Context} context
 */
export function mount(root, context) {
  return new Vocabulary(root, context);
}

export class Vocabulary {
  /**
   * @param {HTMLElement} root
   * @param {Context} context
   */
  constructor(root, context) {
    this.context = context;
    this.mayAdmin = context.can("admin");
    this.settings = context.state.vocabulary ??= {
      section: "labels",
      query: "",
      kind: "",
      order: "count",
    };
    this.turn = 0; // of reading a label; an answer to an earlier request is dropped
    this.summary = h("p.muted", { role: "status" });
    this.side = h("div.vocab-side");
    this.detail = h("section.vocab-detail", { aria_label: "Label" });
    this.columns = h("div.vocab", this.side, this.detail);
    /** @type {LabelList | CandidateList | MergeList | null} */
    this.list = null;
    this.compose(root);
    this.drawSummary();
    this.drawSide();
    this.update();
    context.shortcuts(KEYS);
  }

  unmount() {
    this.turn += 1;
    this.list?.leave();
  }

  /** Lay the page out. @param {HTMLElement} root */
  compose(root) {
    const { mayAdmin } = this;
    const choose = (/** @type {string} */ section) => this.chooseSection(section);
    add(root,
      h("div.page",
        h("header.view-head",
          h("h1", "Vocabulary"),
          segments("Show", "section", SECTIONS, this.settings.section, choose),
          h("div.grow"),
          h("button.primary", { disabled: !mayAdmin, onclick: () => this.openAdd() },
            icon("plus"),
            "Add tags",
          ),
        ),
        this.summary,
        !mayAdmin &&
          h("p.notice", "You may look, but not change: your token lacks the scope “admin”."),
        this.columns,
      ),
    );
  }

  /* ---- what is shown ---- */

  drawSummary() {
    const { n_labels, kinds } = this.context.model;
    const parts = ["seen", "unseen", "oov"].map((kind) => `${count(kinds[kind])} ${kind}`);
    this.summary.textContent = `${plural(n_labels, "label")}: ${parts.join(", ")}.`;
  }

  /** @param {string} section */
  chooseSection(section) {
    this.settings.section = section;
    this.drawSide();
  }

  drawSide() {
    this.list?.leave();
    clear(this.side);
    const List = LISTS[/** @type {keyof typeof LISTS} */ (this.settings.section)];
    this.list = new List(this.side, this);
  }

  /** Show the label that the address names. */
  async update() {
    this.turn += 1;
    const { turn } = this;
    const name = this.context.route.args.join("/");
    this.columns.classList.toggle("has-label", Boolean(name));
    this.markCurrent(name);
    if (!name) {
      clear(this.detail, noLabel());
      return;
    }
    const backLink = h("a.back.only-narrow", { href: "#/vocabulary" }, icon("back"), "All labels");
    const { api } = this.context;
    clear(this.detail, backLink, loading());
    try {
      const card = await api.get(api.model("labels", name));
      if (turn === this.turn) clear(this.detail, backLink, new LabelView(this, card).element);
    } catch (error) {
      if (turn === this.turn)
        clear(this.detail,
          backLink,
          failed(error, () => this.update()),
        );
    }
  }

  /** @param {string} name of the label that is shown */
  markCurrent(name) {
    const hash = name && labelHash(name);
    for (const link of this.side.querySelectorAll("a")) {
      if (link.getAttribute("href") === hash) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  /* ---- changes ---- */

  /**
   * Make a change, say so, and offer to undo it.
   * @param {string} message
   * @param {() => Promise<any>} run
   * @param {Sequel} [sequel]
   */
  change(message, run, { next, revert } = {}) {
    const { api, attempt, toast } = this.context;
    return attempt(async () => {
      const hash = location.hash;
      const versionBefore = revert ? null : (await api.get(api.model("versions"))).current;
      const undo = revert || (versionBefore ? () => this.restore(versionBefore) : undefined);
      await run();
      toast(message, undo ? { undo: () => this.undo(undo, hash) } : {});
      await this.settle(next);
    });
  }

  /**
   * Go back to a version; later changes go with the one to undo, so ask.
   * @param {number} number
   */
  async restore(number) {
    const { api } = this.context;
    /** @type {{versions: Version[]}} */
    const { versions } = await api.get(api.model("versions"));
    const undone = versions.filter((version) => version.number > number);
    if (undone.length > 1 && !(await confirmUndo(undone))) return false;
    await api.post(api.model("versions", number, "restore"));
    return true;
  }

  /**
   * @param {() => Promise<any>} revert gives false if it was not done after all
   * @param {string} hash where the change was made
   */
  undo(revert, hash) {
    const { attempt, toast } = this.context;
    return attempt(async () => {
      const result = await revert();
      if (result === false) return;
      toast("Undone.");
      await this.settle(hash);
    });
  }

  /** Show what is so after a change. @param {string} [hash] where to go on */
  async settle(hash) {
    await this.context.refreshModel().catch(() => {});
    this.drawSummary();
    this.list?.reread();
    if (hash && hash !== location.hash) this.context.navigate(hash);
    else this.update();
  }

  /** @param {Prefill} [prefill] */
  async openAdd(prefill = {}) {
    const addition = await askAddition(this.context, prefill);
    if (!addition) return;
    const { labels, nSets, run, revert } = addition;
    const message = labels.length
      ? `Added: ${labels.join(", ")}.`
      : `Added ${plural(nSets, "tag set")}; all tags were known.`;
    const next = labels.length ? labelHash(labels[0]) : undefined;
    await this.change(message, run, { next, revert });
  }
}

function noLabel() {
  return empty(
    "No label chosen",
    "Choose a label to see what it means and how well it is ranked, and to rename, merge or remove it.",
  );
}

/** @param {Version[]} versions that would be undone */
function confirmUndo(versions) {
  const text = "More has changed since. If you undo this change, the later ones are undone, too:";
  const rows = versions.map(({ action, detail }) => h("li.small", `${action} ${detail || ""}`));
  return confirmed("Undo all of these?", [h("p", text), h("ul", rows)], "Undo all");
}
