// @ts-check
/**
 * Vocabulary: all labels, what each means, and care for them.
 *
 * In: `#/vocabulary`, `#/vocabulary/NAME`. Out: labels renamed, merged, blocked, removed and added;
 * every change says what happened, and can be undone by restoring the version before it.
 */

import { add, clear, debounce, h } from "./dom.js";
import { isAbort } from "./api.js";
import {
  bar,
  confirmed,
  count,
  dialog,
  dialogEnd,
  empty,
  fact,
  failed,
  field,
  form,
  icon,
  kindBadge,
  loading,
  percent,
  plural,
  probabilityText,
  segments,
} from "./parts.js";
import { labelBox } from "./labelbox.js";
import { to } from "./cards.js";
import { picture } from "./items.js";

/** @typedef {import("./app.js").Context} Context */
/** @typedef {import("./app.js").Route} Route */
/**
 * @typedef {(says: string, run: () => Promise<any>, then?: string, back?: () => Promise<any>) => Promise<void>} Change
 */
/** @typedef {{by?: "sets" | "items" | "name", name?: string}} Prefill */

const PAGE = 100;
const ROW = 48;
const AT_ONCE = 8; // questions whether a tag is known
/** Browsers draw nothing beyond some millions of pixels. */
const MOST_ROWS = 200_000;

/** @param {string} name */
const labelHash = (name) => to("vocabulary", name);
/** Spellings that differ in case or white space only are one label. @param {string} text */
const spelled = (text) => text.trim().replace(/\s+/g, " ").toLowerCase();

/** @param {HTMLElement} root @param {Context} context */
export function mount(root, context) {
  const { api, attempt, state, toast, navigate } = context;
  const settings = (state.vocabulary = state.vocabulary || {
    section: "labels",
    query: "",
    kind: "",
    order: "count",
  });
  const may = context.can("admin");
  const side = h("div.vocab-side");
  const detail = h("section.vocab-detail", { aria_label: "Label" });
  const columns = h("div.vocab", side, detail);
  const summary = h("p.muted", { role: "status" });
  const sections = segments(
    "Show",
    "section",
    [
      ["labels", "Labels"],
      ["candidates", "Worth adding"],
      ["merges", "Perhaps the same"],
    ],
    settings.section,
    (value) => ((settings.section = value), drawSide()),
  );
  /** The list: how to leave it, and to show it again at the place it is at. */
  let list = { leave: () => {}, reread: () => {} };

  const summarise = () => {
    const { n_labels: all, kinds } = context.model;
    summary.textContent = `${plural(all, "label")}: ${count(kinds.seen)} seen, ${count(kinds.unseen)} unseen, ${count(kinds.oov)} oov.`;
  };

  /** @type {Change} */
  const change = (says, run, then, back) =>
    attempt(async () => {
      const from = location.hash;
      const before = back ? null : (await api.get(api.model("versions"))).current;
      await run();
      toast(
        says,
        back || before ? { undo: () => takeBack(back || (() => restore(before)), from) } : {},
      );
      await settle(then);
    });

  /**
   * Go back to a version; changes that came after the one to undo go with it, so ask.
   * @param {number} number
   */
  const restore = async (number) => {
    const { versions } = await api.get(api.model("versions"));
    const since = versions.filter((/** @type {any} */ one) => one.number > number);
    if (since.length > 1 && !(await sure(since))) return false;
    await api.post(api.model("versions", number, "restore"));
    return true;
  };

  /**
   * @param {() => Promise<any>} back gives false if it was not done after all
   * @param {string} hash
   */
  const takeBack = (back, hash) =>
    attempt(async () => {
      if ((await back()) === false) return;
      toast("Undone.");
      await settle(hash);
    });

  /** Show what is so now. @param {string} [hash] where to go on */
  const settle = async (hash) => {
    await context.refreshModel().catch(() => {});
    summarise();
    list.reread();
    if (hash && hash !== location.hash) navigate(hash);
    else drawDetail();
  };

  const openAdd = async (/** @type {Prefill} */ prefill = {}) => {
    const added = await addDialog(context, prefill);
    if (!added) return;
    const first = added.labels[0];
    await change(
      added.labels.length
        ? `Added: ${added.labels.join(", ")}.`
        : `Added ${plural(added.sets, "tag set")}; all tags were known.`,
      added.run,
      first && labelHash(first),
      added.back,
    );
  };

  const drawSide = () => {
    list.leave();
    clear(side);
    const draw = { labels: labelList, candidates, merges }[
      /** @type {"labels"} */ (settings.section)
    ];
    list = draw(side, { context, change, may, openAdd });
  };

  let turn = 0;
  const drawDetail = async () => {
    turn += 1;
    const mine = turn;
    const name = context.route.args.join("/");
    columns.classList.toggle("has-label", Boolean(name));
    for (const link of side.querySelectorAll("a[aria-current]"))
      link.removeAttribute("aria-current");
    if (!name) {
      clear(detail,
        empty(
          "No label chosen",
          "Choose a label to see what it means here, how well it does, and to rename, merge or remove it.",
        ),
      );
      return;
    }
    for (const link of side.querySelectorAll("a"))
      if (link.getAttribute("href") === labelHash(name)) link.setAttribute("aria-current", "true");
    const back = h("a.back.only-narrow", { href: "#/vocabulary" }, icon("back"), "All labels");
    clear(detail, back, loading());
    try {
      const card = await api.get(api.model("labels", name));
      if (mine === turn) clear(detail, back, labelCard(card, { context, change, may, openAdd }));
    } catch (error) {
      if (mine === turn) clear(detail, back, failed(error, drawDetail));
    }
  };

  add(root,
    h("div.page",
      h("header.view-head",
        h("h1", "Vocabulary"),
        sections,
        h("div.grow"),
        h("button.primary", { disabled: !may, onclick: () => openAdd() }, icon("plus"), "Add tags"),
      ),
      summary,
      !may && h("p.notice", "You may look, but not change: your token lacks the scope “admin”."),
      columns,
    ),
  );
  context.shortcuts([
    { keys: "/", does: "search labels" },
    { keys: "↑ ↓", does: "move in the list" },
    { keys: "Enter", does: "open a label" },
  ]);
  summarise();
  drawSide();
  drawDetail();
  return { update: drawDetail, unmount: () => ((turn += 1), list.leave()) };
}

/**
 * @typedef {{context: Context, change: Change, may: boolean, openAdd: (prefill?: Prefill) => Promise<void>}} Tools
 */

/* ------------------------------------------------------------------ the list */

/** @param {string} kind */
const filtered = (kind) => (kind === "blocked" ? { blocked: true } : { kind });

/** @param {HTMLElement} side @param {Tools} tools */
function labelList(side, { context }) {
  const { api, state } = context;
  const settings = state.vocabulary;
  /** Pages that were read or are being read. @type {Map<number, any[] | null>} */
  const pages = new Map();
  /** @type {Map<number, any>} */
  const rows = new Map();
  let total = 0;
  let control = new AbortController();

  const search = h("input", {
    type: "search",
    data_search: "",
    value: settings.query,
    placeholder: "Search labels",
    aria_label: "Search labels",
    autocomplete: "off",
    oninput: debounce(() => ((settings.query = search.value.trim()), restart()), 180),
  });
  const choice = (
    /** @type {string} */ key,
    /** @type {string} */ name,
    /** @type {string[][]} */ options,
  ) => {
    const select = h("select",
      { aria_label: name, onchange: () => ((settings[key] = select.value), restart()) },
      options.map(([value, text]) =>
        h("option", { value, selected: value === settings[key] }, text),
      ),
    );
    return select;
  };
  const found = h("p.muted.small", { role: "status" });
  const space = h("div.vlist-space", { role: "list", aria_label: "Labels" });
  const scroller = h("div.vlist", { onscroll: () => draw() }, space);
  const note = h("div");
  add(side,
    h("div.stack.tight",
      search,
      h("div.row",
        choice("kind", "Kind", [
          ["", "All kinds"],
          ["seen", "Seen"],
          ["unseen", "Unseen"],
          ["oov", "Oov"],
          ["blocked", "Blocked"],
        ]),
        choice("order", "Order", [
          ["count", "Most used first"],
          ["name", "By name"],
          ["quality", "Best ranked first"],
        ]),
      ),
    ),
    h("div.row.vlist-head.small.muted",
      found,
      h("span.grow"),
      h("span.vcol", "tag sets"),
      h("span.vcol", { title: "C-MAP on items that were held out" }, "C-MAP"),
    ),
    scroller,
    note,
  );

  /** @param {number} at */
  const readPage = async (at) => {
    if (pages.has(at)) return;
    pages.set(at, null);
    const mine = control;
    try {
      const answer = await api.get(api.model("labels"), {
        params: {
          query: settings.query,
          ...filtered(settings.kind),
          order: settings.order,
          offset: at * PAGE,
          limit: PAGE,
        },
        signal: mine.signal,
      });
      pages.set(at, answer.labels);
      total = answer.total;
      space.style.setProperty("height", `${Math.min(total, MOST_ROWS) * ROW}px`);
      found.textContent =
        total > MOST_ROWS
          ? `${plural(total, "label")}; search to see those beyond ${count(MOST_ROWS)}`
          : plural(total, "label");
      scroller.hidden = total === 0;
      clear(note,
        total === 0 &&
          (settings.query || settings.kind
            ? empty("No label matches", "Try fewer letters, or all kinds.")
            : empty("No labels yet")),
      );
      draw();
    } catch (error) {
      if (isAbort(error)) return;
      pages.delete(at);
      clear(note,
        failed(error, () => (clear(note), (scroller.hidden = false), draw(true))),
      );
    }
  };

  /** @param {number} at @param {any} label */
  const makeRow = (at, label) => {
    const here = label && labelHash(label.label);
    const quality = label && (label.kind === "seen" ? label.quality : label.quality_unseen);
    const row = h("div.vrow", { role: "listitem", aria_setsize: total, aria_posinset: at + 1 },
      label
        ? h("a", {
              href: here,
              aria_current: here === labelHash(context.route.args.join("/")) ? "true" : null,
              dataset: { at },
            },
            h("span", { class: label.blocked ? "vname struck" : "vname" }, label.label),
            label.blocked && h("span.kind.kind-blocked", "blocked"),
            label.kind !== "seen" && h("span", { class: `kind kind-${label.kind}` }, label.kind),
            h("span.vcol", count(label.count)),
            h("span.vcol", percent(quality)),
          )
        : h("span.vghost", { aria_hidden: "true" }),
    );
    row.style.setProperty("top", `${at * ROW}px`);
    row.known = Boolean(label);
    return row;
  };

  /** The rows in sight, and a few beyond. @param {boolean} [first] */
  function draw(first = false) {
    const from = Math.max(0, Math.floor(scroller.scrollTop / ROW) - 8);
    const to = Math.min(
      first ? 1 : Math.min(total, MOST_ROWS),
      Math.ceil((scroller.scrollTop + scroller.clientHeight) / ROW) + 8,
    );
    for (
      let page = Math.floor(from / PAGE);
      page <= Math.floor(Math.max(from, to - 1) / PAGE);
      page += 1
    )
      readPage(page);
    for (const [at, row] of rows) {
      if (at >= from && at < to) continue;
      row.remove();
      rows.delete(at);
    }
    if (first) return;
    for (let at = from; at < to; at += 1) {
      const label = pages.get(Math.floor(at / PAGE))?.[at % PAGE];
      const before = rows.get(at);
      if (before && (before.known || !label)) continue;
      const row = makeRow(at, label);
      if (before) before.replaceWith(row);
      else space.append(row);
      rows.set(at, row);
    }
  }

  const forget = () => {
    control.abort();
    control = new AbortController();
    pages.clear();
    rows.clear();
    clear(space);
  };
  const restart = () => {
    forget();
    scroller.scrollTop = 0;
    total = 0;
    draw(true);
  };
  scroller.addEventListener("keydown", (/** @type {any} */ event) => {
    const from = event.target.dataset?.at;
    const step = { ArrowDown: 1, ArrowUp: -1 }[/** @type {string} */ (event.key)];
    if (from === undefined || !step) return;
    const row = rows.get(Number(from) + step);
    row?.querySelector("a")?.focus();
    event.preventDefault();
  });
  const watch = new ResizeObserver(() => draw(total === 0));
  watch.observe(scroller);
  restart();
  return {
    leave: () => (control.abort(), watch.disconnect()),
    reread: () => {
      forget();
      draw(total === 0);
    },
  };
}

/* ------------------------------------------------------------------ one label */

/** @param {any} card @param {Tools} tools */
function labelCard(card, { context, change, may }) {
  const { api } = context;
  const name = card.label;
  const act = (/** @type {string} */ verb, /** @type {any} */ body) =>
    api.post(api.model("labels", name, verb), body);
  const answers = card.verdicts.yes + card.verdicts.no;

  const rename = async () => {
    const to = await dialog("Rename", (close) => {
      const input = h("input", {
        value: name,
        required: true,
        name: "name",
        autocomplete: "off",
        aria_label: "New name",
      });
      return form(
        () => close(input.value.trim()),
        h("p", `“${name}” gets another name; the old one goes on leading to it.`),
        field("New name", input),
        dialogEnd(close, submitButton("Rename")),
      );
    });
    if (to && to !== name)
      await change(`“${name}” is now “${to}”.`, () => act("rename", { name: to }), labelHash(to));
  };

  const merge = async () => {
    const into = await dialog("Merge", (close) => {
      const near = card.similar.slice(0, 5);
      const chosen = h("p.muted", { role: "status" }, "Choose the label that stays.");
      const submit = submitButton("Merge", true);
      let target = "";
      const choose = (/** @type {string} */ label) => {
        target = label === name ? "" : label;
        submit.disabled = !target;
        chosen.textContent = target
          ? `“${name}” goes, “${target}” stays and takes over its tag sets and answers.`
          : "A label cannot be merged into itself.";
      };
      return form(
        () => target && close(target),
        h("p", `Items and tag sets with “${name}” count for another label from now on.`),
        labelBox({
          api,
          name: "Merge into",
          placeholder: "Search the label that stays",
          keep: true,
          choose,
        }).element,
        near.length > 0 &&
          h("div.chips",
            near.map((/** @type {any} */ one) =>
              h("button.chip", { onclick: () => choose(one.label) }, one.label),
            ),
          ),
        chosen,
        dialogEnd(close, submit),
      );
    });
    if (into)
      await change(
        `“${name}” was merged into “${into}”.`,
        () => act("merge", { into }),
        labelHash(into),
      );
  };

  const remove = async () => {
    const sure = await dialog("Remove for good", (close) => {
      const submit = h("button.danger", { type: "submit", disabled: true }, "Remove");
      const input = h("input", {
        autocomplete: "off",
        aria_label: `Type ${name} to confirm`,
        oninput: () => (submit.disabled = spelled(input.value) !== spelled(name)),
      });
      return form(
        () => close(!submit.disabled),
        h("p",
          `“${name}” leaves the vocabulary and all known tag sets; it will not be suggested again. To only keep it out of suggestions, block it.`,
        ),
        field(`Type “${name}” to confirm`, input),
        dialogEnd(close, submit),
      );
    });
    if (sure)
      await change(
        `“${name}” was removed.`,
        () => api.del(api.model("labels", name)),
        "#/vocabulary",
      );
  };

  const block = () =>
    change(
      card.blocked ? `“${name}” is suggested again.` : `“${name}” is no longer suggested.`,
      () => act("block", { undo: card.blocked }),
    );
  const chips = (/** @type {string[]} */ labels) =>
    h("div.chips",
      labels.map((one) => h("a.chip", { href: labelHash(one) }, one)),
    );

  return h("article.stack",
    h("header.stack.tight",
      h("div.row",
        h("h2.label-name", name),
        kindBadge(card.kind),
        card.blocked &&
          h("span.kind.kind-blocked", { title: "blocked: never suggested" }, "blocked"),
      ),
      card.aliases.length > 0 && h("p.muted.small", `Also: ${card.aliases.join(", ")}`),
      card.implies.length > 0 && h("p.muted.small", `Implies: ${card.implies.join(", ")}`),
      h("div.row",
        h("a.button", { href: to("review/label", name) }, icon("review"), "Review"),
        h("a.button", { href: to("map/label", name) }, icon("map"), "On the map"),
      ),
      h("div.row",
        h("button", { disabled: !may, onclick: rename }, "Rename"),
        h("button", { disabled: !may, onclick: merge }, "Merge…"),
        h("button", { disabled: !may, onclick: block }, card.blocked ? "Unblock" : "Block"),
        h("button.danger", { disabled: !may, onclick: remove }, "Remove…"),
      ),
    ),
    h("dl.facts",
      fact("Tag sets", count(card.count)),
      fact("Answers",
        answers ? `${count(card.verdicts.yes)} yes, ${count(card.verdicts.no)} no` : "none yet",
      ),
      card.quality !== null && fact("C-MAP, held out", percent(card.quality)),
      card.quality_unseen !== null && fact("C-MAP when made unseen", percent(card.quality_unseen)),
    ),
    h("p.muted.small", qualitySentence(card)),
    card.senses.length > 0 &&
      h("section.stack.tight",
        h("h3", card.senses.length > 1 ? `${count(card.senses.length)} senses` : "One sense"),
        card.senses.map((/** @type {any} */ sense) =>
          h("details.fold",
            h("summary",
              h("span.grow", sense.words.join(", ")),
              h("span.muted.small", plural(sense.count, "tag set")),
            ),
            h("ul",
              sense.example_sets.map((/** @type {string[]} */ set) =>
                h("li.small", set.join(", ")),
              ),
            ),
          ),
        ),
      ),
    card.companions.length > 0 &&
      h("section.stack.tight",
        h("h3", "Stands most often beside"),
        h("ul.companions",
          card.companions.map((/** @type {any} */ one) =>
            h("li",
              h("a", { href: labelHash(one.label) }, one.label),
              bar(one.share),
              h("span.vcol", percent(one.share)),
            ),
          ),
        ),
      ),
    card.similar.length > 0 &&
      h("section.stack.tight",
        h("h3", "Similar labels"),
        chips(card.similar.map((/** @type {any} */ one) => one.label)),
      ),
  );
}

/** @param {any[]} since versions that would be undone */
function sure(since) {
  return confirmed("Undo all of these?",
    [
      h("p",
        "More was changed in the meantime. To undo goes back to how things were before all of it:",
      ),
      h("ul",
        since.map((one) => h("li.small", `${one.action} ${one.detail || ""}`)),
      ),
    ],
    "Undo all",
  );
}

/** @param {any} card */
function qualitySentence(card) {
  const measured = card.kind === "seen" ? card.quality : card.quality_unseen;
  if (measured === null || measured === undefined)
    return "How well this label is ranked was not measured: too few held-out items carry it.";
  const words =
    measured >= 0.6
      ? "Items that carry it stand high"
      : measured >= 0.3
        ? "Items that carry it stand fairly high"
        : "Items that carry it are hard to find";
  return `${words} when all are ranked for it.`;
}

/** @param {string} text @param {boolean} [disabled] */
const submitButton = (text, disabled = false) =>
  h("button.primary", { type: "submit", disabled }, text);

/* ------------------------------------------------------------------ worth adding, perhaps the same */

/**
 * A list that is read at once and again after a change.
 * @param {HTMLElement} side @param {string} says @param {() => Promise<any[]>} read
 * @param {(one: any, again: () => void) => any} row @param {any} none
 */
function simpleList(side, says, read, row, none) {
  const list = h("div");
  let gone = false;
  const draw = async () => {
    try {
      const found = await read();
      if (gone) return;
      clear(list,
        found.length
          ? h("ul.care-rows",
              found.map((one) => row(one, draw)),
            )
          : none,
      );
    } catch (error) {
      if (!gone) clear(list, failed(error, draw));
    }
  };
  add(side, h("p.muted", says), clear(list, loading()));
  draw();
  return { leave: () => (gone = true), reread: draw };
}

/** @param {HTMLElement} side @param {Tools} tools */
function candidates(side, { context, change, may, openAdd }) {
  const { api, attempt } = context;
  const addOne = (/** @type {any} */ one) =>
    attempt(async () => {
      if (one.source !== "items") return openAdd({ by: "sets", name: one.label });
      const { items } = await api.get(api.model("items"), {
        params: { query: one.label, limit: 200 },
      });
      const carrying = items.filter((/** @type {any} */ item) =>
        item.tags.some((/** @type {string} */ tag) => spelled(tag) === spelled(one.label)),
      );
      if (!carrying.length) return openAdd({ by: "items", name: one.label });
      const ids = carrying.map((/** @type {any} */ item) => item.id);
      const { run, back } = throughItems(context, one.label, ids);
      await change(
        `Added “${one.label}” by ${plural(ids.length, "item")}.`,
        run,
        labelHash(one.label),
        back,
      );
    });
  return simpleList(
    side,
    "Tags outside the vocabulary: items carry them, or people have typed them.",
    async () => (await api.get(api.model("candidates"))).candidates,
    (one) =>
      h("li.care-row",
        h("div.grow",
          h("strong", one.label),
          h("p.muted.small",
            one.source === "items"
              ? `on ${plural(one.count, "item")}`
              : `typed ${plural(one.count, "time")}`,
          ),
        ),
        h("button", { disabled: !may, aria_label: `Add ${one.label}`, onclick: () => addOne(one) },
          icon("plus"),
          one.source === "items" ? "Add" : "Add…",
        ),
      ),
    empty(
      "Nothing to add",
      "All tags of the items, and all that was typed, are in the vocabulary.",
    ),
  );
}

/** @param {HTMLElement} side @param {Tools} tools */
function merges(side, { context, change, may }) {
  const { api, state } = context;
  /** Pairs that a person called different. @type {Set<string>} */
  const apart = (state.apart = state.apart || new Set());
  const key = (/** @type {any} */ one) => JSON.stringify([one.label, one.into].sort());
  const link = (/** @type {string} */ label) => h("a", { href: labelHash(label) }, label);
  return simpleList(
    side,
    "Labels that are used so alike that they may be one.",
    async () =>
      (await api.get(api.model("merges"), { params: { limit: 40 } })).pairs.filter(
        (/** @type {any} */ one) => !apart.has(key(one)),
      ),
    (one, again) => {
      const row = h("li.care-row");
      const draw = (/** @type {string} */ from, /** @type {string} */ into) =>
        clear(row,
          h("div.grow",
            h("p", link(from), " into ", link(into)),
            h("p.muted.small", `alike ${probabilityText(one.alike)}`),
          ),
          h("div.row",
            h("button", {
                disabled: !may,
                aria_label: `Merge ${from} into ${into}`,
                onclick: () =>
                  change(
                    `“${from}” was merged into “${into}”.`,
                    () => api.post(api.model("labels", from, "merge"), { into }),
                    labelHash(into),
                  ),
              },
              "Merge",
            ),
            h("button.quiet", {
                aria_label: `Keep ${into}'s place: merge it into ${from} instead`,
                onclick: () => draw(into, from),
              },
              "Swap",
            ),
            h("button.quiet", {
                aria_label: `${from} and ${into} are different`,
                onclick: () => (apart.add(key(one)), again()),
              },
              "Different",
            ),
          ),
        );
      draw(one.label, one.into);
      return row;
    },
    empty("No two labels are that alike"),
  );
}

/* ------------------------------------------------------------------ add */

/**
 * Ask how to add; resolves with the labels that will be new and the call that adds them.
 * @param {Context} context @param {Prefill} prefill
 * @returns {Promise<{labels: string[], sets: number, run: () => Promise<any>, back?: () => Promise<any>} | undefined>}
 */
function addDialog(context, prefill) {
  return dialog("Add tags", (close) => {
    const pane = h("div.stack");
    const forms = { sets: bySets, items: byItems, name: byName };
    const show = (/** @type {"sets" | "items" | "name"} */ which) =>
      clear(pane, forms[which](context, close, prefill.name));
    const first = prefill.by || "sets";
    const ways = [
      ["sets", "By tag sets"],
      ...(context.model.collection ? [["items", "By items"]] : []),
      ["name", "By name"],
    ];
    show(first);
    return h("div.stack.wide", segments("How", "way", ways, first, show), pane);
  });
}

/** @param {Context} context @param {(value?: any) => void} close @param {string} [name] */
function bySets({ api }, close, name = "") {
  const preview = h("div.stack.tight", { role: "status" });
  const submit = submitButton("Add", true);
  const input = h("textarea", {
    rows: 4,
    placeholder: "parasol, sand, sea\nparasol, sun, towel",
    aria_label: "Tag sets, one a line, with commas between the tags",
    value: name ? `${name}, ` : "",
    oninput: () => look(),
  });
  /** @type {string[]} */
  let fresh = [];
  /** Which spellings are labels, as far as it was looked up. @type {Map<string, boolean>} */
  const known = new Map();
  let turn = 0;
  const sets = () =>
    input.value
      .split("\n")
      .map((/** @type {string} */ line) =>
        line
          .split(",")
          .map((tag) => tag.trim())
          .filter(Boolean),
      )
      .filter((/** @type {string[]} */ set) => set.length);
  const look = debounce(async () => {
    const given = sets();
    const tags = [...new Set(given.flat())];
    turn += 1;
    const mine = turn;
    submit.disabled = true;
    if (!tags.length) {
      clear(preview);
      return;
    }
    try {
      const open = [...new Set(tags.map(spelled))].filter((name) => !known.has(name));
      for (let at = 0; at < open.length; at += AT_ONCE) {
        const some = open.slice(at, at + AT_ONCE);
        // In the order of names a label stands before all that begin with it.
        const answers = await Promise.all(
          some.map((query) =>
            api.get(api.model("labels"), { params: { query, order: "name", limit: 1 } }),
          ),
        );
        answers.forEach(({ labels }, i) =>
          known.set(some[i], labels.length > 0 && spelled(labels[0].label) === some[i]),
        );
        if (mine !== turn) return;
      }
      const isNew = (/** @type {string} */ tag) => !known.get(spelled(tag));
      fresh = [...new Map(tags.filter(isNew).map((tag) => [spelled(tag), tag])).values()];
      const adrift = given.filter((/** @type {string[]} */ set) => set.every(isNew));
      submit.disabled = adrift.length > 0;
      submit.textContent = `Add ${plural(given.length, "tag set")}`;
      clear(preview,
        given.map((/** @type {string[]} */ set) =>
          h("div.chips",
            set.map((tag) =>
              isNew(tag)
                ? h("span.chip.chip-new", icon("plus"), tag, h("span.sr", " (new)"))
                : h("span.chip", tag, h("span.sr", " (known)")),
            ),
          ),
        ),
        h("p.small.muted",
          fresh.length
            ? `New: ${fresh.join(", ")}.`
            : "All these tags are known; the tag sets are added all the same.",
        ),
        adrift.length > 0 &&
          h("p.small.against",
            `“${adrift[0].join(", ")}” holds no known tag: a new tag is known by its company, so put one beside it.`,
          ),
      );
    } catch (error) {
      if (mine === turn) clear(preview, failed(error, look));
    }
  }, 250);
  look();
  const send = () => {
    const documents = sets();
    if (!submit.disabled)
      close({
        labels: fresh,
        sets: documents.length,
        run: () => api.post(api.model("labels"), { documents }),
      });
  };
  return form(
    send,
    field("Tag sets that show how it is used: one a line, commas between", input),
    preview,
    dialogEnd(close, submit),
  );
}

/**
 * Add a label by items that carry it: these are answers, so to undo takes the answers back.
 * @param {Context} context @param {string} label @param {string[]} items
 */
function throughItems({ api }, label, items) {
  return {
    run: () => api.post(api.model("labels"), { label, items }),
    back: async () => {
      const { verdicts } = await api.get(api.model("verdicts"), { params: { label, limit: 1000 } });
      const numbers = verdicts
        .filter((/** @type {any} */ one) => !one.undone && one.answer && items.includes(one.item))
        .map((/** @type {any} */ one) => one.number);
      if (numbers.length) await api.post(api.model("undo"), { numbers });
    },
  };
}

/** @param {Context} context @param {(value?: any) => void} close @param {string} [name] */
function byItems(context, close, name = "") {
  const { api } = context;
  /** @type {Set<string>} */
  const chosen = new Set();
  const input = h("input", {
    value: name,
    autocomplete: "off",
    aria_label: "New tag",
    oninput: () => ready(),
  });
  const search = h("input", {
    type: "search",
    placeholder: "Search items",
    aria_label: "Search items",
    autocomplete: "off",
    oninput: () => read(),
  });
  const grid = h("div.board.board-pick", loading());
  const said = h("p.small.muted", { role: "status" });
  const submit = submitButton("Add");
  const ready = () => {
    submit.disabled = !input.value.trim() || !chosen.size;
    said.textContent = chosen.size
      ? `${plural(chosen.size, "item")} chosen.`
      : "Choose items that should carry the tag.";
  };
  let control = new AbortController();
  const read = debounce(async () => {
    control.abort();
    control = new AbortController();
    try {
      const { items } = await api.get(api.model("items"), {
        params: { query: search.value.trim(), limit: 24 },
        signal: control.signal,
      });
      clear(grid,
        items.length
          ? items.map((/** @type {any} */ item) => {
              const button = h("button.tile-face", {
                  aria_pressed: String(chosen.has(item.id)),
                  aria_label: item.id,
                  title: item.id,
                  onclick: () => {
                    if (!chosen.delete(item.id)) chosen.add(item.id);
                    button.setAttribute("aria-pressed", String(chosen.has(item.id)));
                    ready();
                  },
                },
                picture(context, item.id, 256, item),
              );
              return button;
            })
          : h("p.muted", "No item matches."),
      );
    } catch (error) {
      if (!isAbort(error)) clear(grid, failed(error, read));
    }
  }, 150);
  read();
  ready();
  const send = () => {
    const label = input.value.trim();
    if (!submit.disabled)
      close({ labels: [label], sets: 0, ...throughItems(context, label, [...chosen]) });
  };
  return form(send, field("New tag", input), search, grid, said, dialogEnd(close, submit));
}

/** @param {Context} context @param {(value?: any) => void} close @param {string} [name] */
function byName({ api, model }, close, name = "") {
  if (!model.takes_names) {
    return h("p.muted",
      "A tag can be placed by its name alone if the service is started with word vectors; it was started without. Add it by tag sets or items instead.",
    );
  }
  const input = h("input", {
    value: name,
    required: true,
    autocomplete: "off",
    placeholder: "seaside, promenade",
    aria_label: "Names, with commas between",
  });
  const send = () => {
    const labels = input.value
      .split(",")
      .map((/** @type {string} */ one) => one.trim())
      .filter(Boolean);
    if (labels.length)
      close({ labels, sets: 0, run: () => api.post(api.model("labels"), { labels }) });
  };
  return form(
    send,
    h("p", "Word vectors say what a name means. Tag sets say more than names."),
    field("Names, with commas between", input),
    dialogEnd(close, submitButton("Add")),
  );
}
