"use strict";
// Names and values come from the data: they are only ever set as text, never as markup.
const $ = (id) => document.getElementById(id);
const make = (tag, text, name) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
};
const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`;
let shown = null, grid = false, busy = false;
let trail = [];  // of rows that were shown, for the arrows

async function ask(path, sent) {
  const how = sent === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(sent),
  };
  const found = await fetch(path, { ...how, cache: "no-store" });
  const said = await found.json();
  if (!found.ok) throw new Error(said.error || found.statusText);
  return said;
}

function query(start, count) {
  const words = new URLSearchParams({ state: $("state").value, text: $("text").value, start, count });
  return `list?${words}`;
}

function progress(found) {
  const all = found.progress || found;
  const share = all.total ? all.answered / all.total : 0;
  $("filled").style.width = `${100 * share}%`;
  $("bar").setAttribute("aria-valuemax", all.total);
  $("bar").setAttribute("aria-valuenow", all.answered);
  let words = `${all.answered} of ${all.total} answered: ${all.positive} positive, ${all.negative} negative, ${all.skip} skipped`;
  if (all.disagreement) words += `; ${all.disagreement} with two answers`;
  if (all.audit) {
    const interval = ([value, low, high]) => `${percent(value)} (${percent(low)} to ${percent(high)})`;
    words += `. Audit: accuracy ${interval(all.audit.accuracy)}, prior ${interval(all.audit.prior)}`;
  }
  $("progress").textContent = words;
}

function image(row, at, original) {
  const made = make("img");
  made.alt = "";
  made.src = `${original ? "original" : "picture"}/${row}${at === undefined ? "" : `?at=${at}`}`;
  return made;
}

function place(fact) {
  const cell = make("td", undefined, "place");
  if (!fact.number) {
    if (fact.everyone !== null) cell.append(make("span", `${percent(fact.positives ?? 0)} of positives, ${percent(fact.everyone)} of all`, "words"));
    return cell;
  }
  const track = make("div", undefined, "track");
  for (const [share, name] of [[fact.everyone, "e"], [fact.positives, "p"]]) {
    if (share === null) continue;
    const mark = make("i", undefined, name);
    mark.style.left = `${100 * share}%`;
    track.append(mark);
  }
  const words = `above ${percent(fact.positives ?? 0)} of positives, ${percent(fact.everyone ?? 0)} of all`;
  cell.append(track, make("span", words, "words"));
  return cell;
}

function record(facts) {
  const table = make("table"), head = make("tr");
  for (const word of ["column", "value", "where it lies"]) head.append(make("th", word));
  table.append(head);
  for (const fact of facts) {
    const line = make("tr");
    const column = make("th", fact.column);
    column.scope = "row";
    line.append(column, make("td", fact.value, fact.value.length > 60 ? "long" : ""), place(fact));
    table.append(line);
  }
  return table;
}

function look() {
  const picture = $("stage").querySelector("img");
  if (!picture) return;
  // A narrower window is more contrast about the level.
  picture.style.filter = `brightness(${2 - $("level").value / 100}) contrast(${100 / $("window").value})`;
  picture.style.width = `calc(min(100%, var(--tall)) * ${$("zoom").value / 100})`;
}

function slice() {
  const picture = $("stage").querySelector("img");
  if (!shown || shown.kind !== "volume" || !picture) return;
  picture.src = `picture/${shown.index}?at=${$("slice").value}`;
  $("slice-out").textContent = `${Number($("slice").value) + 1} of ${shown.slices}`;
}

function show(sample) {
  shown = sample;
  $("one").hidden = !sample || grid;
  $("empty").hidden = Boolean(sample) || grid;
  $("grid").hidden = !grid;
  if (!sample) return;
  $("name").textContent = sample.name;
  $("why").textContent = `asked because: ${sample.why}`;
  const stage = $("stage");
  stage.replaceChildren(sample.kind === "record" ? record(sample.record) : image(sample.index, undefined, sample.kind === "image"));
  $("tools").hidden = sample.kind === "record";
  $("slice-label").hidden = sample.kind !== "volume";
  $("slice").max = sample.slices - 1;
  $("slice").value = sample.middle;
  if (sample.kind === "volume") slice();
  look();
  const facts = [["probability", percent(sample.probability)], ["its teacher", percent(sample.teacher)],
    ["model says", sample.decision ? "positive" : "negative"]];
  if (sample.mine) facts.push(["you said", sample.mine]);
  for (const other of sample.others) facts.push([`${other.reviewer} said`, other.answer]);
  $("opinions").replaceChildren(...facts.map(([name, value]) => {
    const both = make("div");
    both.append(make("dt", name), make("dd", value));
    return both;
  }));
  $("near").replaceChildren(...sample.nearest.map((near) => {
    const figure = make("figure", undefined, near.record ? "rows" : "");
    if (near.record) {
      const lines = Object.entries(near.record).slice(0, 8).map(([name, value]) => make("div", `${name}: ${value}`));
      figure.append(...lines);
    } else figure.append(image(near.index));
    figure.append(make("figcaption", near.name));
    return figure;
  }));
}

async function next() {
  const found = await ask(query(0, 2));
  progress(found);
  const one = found.samples.find((sample) => !shown || sample.index !== shown.index) || found.samples[0];
  show(one ? await ask(`sample/${one.index}`) : null);
}

async function refresh() {
  const found = await ask(grid ? `${query(0, 60)}&grid=1` : query(0, 1));
  $("who").textContent = `as ${found.reviewer}, order: ${found.order}`;
  progress(found);
  if (grid) {
    $("grid").replaceChildren(...found.samples.map((sample) => {
      const card = make("button", undefined, sample.mine || "");
      card.type = "button";
      if (shown === null || shown.kind !== "record") card.append(image(sample.index));
      card.append(make("h3", sample.name), make("div", percent(sample.probability)));
      for (const value of sample.values) card.append(make("div", value, "words"));
      card.addEventListener("click", async () => { grid = false; marks(); show(await ask(`sample/${sample.index}`)); });
      return card;
    }));
    show(shown);
    return;
  }
  const one = found.samples[0];
  show(one ? await ask(`sample/${one.index}`) : null);
}

async function answer(word) {
  if (grid) $("said").textContent = "open a sample of the grid to answer about it";
  if (!shown || grid) return;
  const row = shown.index, name = shown.name;
  try {
    progress(await ask("answer", { index: row, answer: word, known: shown.mine }));  // on disk when this returns
  } catch (error) {
    await ask(`sample/${row}`).then(show, () => {});  // another window may have answered, or the server is gone
    throw error;
  }
  trail.push(row);
  $("said").textContent = `${name}: ${word}`;
  if ($("state").value === "open") await next();
  else await step(1);
}

async function undo() {
  const found = await ask("undo", {});
  progress(found);
  if (found.index !== null) show(await ask(`sample/${found.index}`));
  $("said").textContent = found.index === null ? "nothing to take back" : "taken back";
}

async function step(by) {
  // By its place in the list: in a list of open samples the answered ones are gone, so back is where one came from.
  if (by < 0 && $("state").value === "open") {
    const row = trail.pop();
    if (row !== undefined) show(await ask(`sample/${row}`));
    return;
  }
  const found = await ask(shown ? `${query(by, 1)}&beside=${shown.index}` : query(0, 1));
  const one = found.samples[0];
  if (one) {
    if (shown && by > 0) trail.push(shown.index);
    show(await ask(`sample/${one.index}`));
  } else $("said").textContent = "there are no more";
}

function marks() {
  $("grid-button").setAttribute("aria-pressed", String(grid));
  for (const button of document.querySelectorAll("[data-answer]")) button.disabled = grid;  // it would be about none of them
}

async function carefully(work) {
  if (busy) return;
  busy = true;
  try { await work(); } catch (error) { $("said").textContent = `not saved: ${error.message}`; } finally { busy = false; }
}

const KEYS = {
  a: () => answer("positive"), x: () => answer("negative"), " ": () => answer("skip"),
  u: undo, Backspace: undo, ArrowRight: () => step(1), ArrowLeft: () => step(-1),
  g: async () => { grid = !grid; marks(); await refresh(); },
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
  if (event.target.matches("button") && [" ", "Enter"].includes(event.key)) return;
  if (shown && shown.kind === "volume" && ["ArrowUp", "ArrowDown"].includes(event.key)) {
    $("slice").value = Number($("slice").value) + (event.key === "ArrowUp" ? 1 : -1);
    slice();
    event.preventDefault();
    return;
  }
  const work = KEYS[event.key];
  if (work) {
    event.preventDefault();
    carefully(work);
  }
});
for (const button of document.querySelectorAll("[data-answer]")) button.addEventListener("click", () => carefully(() => answer(button.dataset.answer)));
$("undo").addEventListener("click", () => carefully(undo));
$("grid-button").addEventListener("click", () => carefully(KEYS.g));
$("filter").addEventListener("submit", (event) => event.preventDefault());
for (const id of ["state", "text"]) $(id).addEventListener("change", () => carefully(refresh));
for (const id of ["window", "level", "zoom"]) $(id).addEventListener("input", look);
$("slice").addEventListener("input", slice);
$("stage").addEventListener("wheel", (event) => {
  if (!shown || shown.kind !== "volume") return;
  event.preventDefault();
  $("slice").value = Number($("slice").value) + Math.sign(event.deltaY);
  slice();
}, { passive: false });
carefully(refresh);
