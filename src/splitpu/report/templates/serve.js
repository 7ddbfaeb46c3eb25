"use strict";
const at = (id) => document.getElementById(id);

async function score(content, kind) {
  at("said").textContent = "scoring ...";
  at("scores").replaceChildren();
  const answer = await fetch("/score", { method: "POST", headers: { "Content-Type": kind }, body: content });
  const found = await answer.json();
  at("said").textContent = found.error || "";
  const scores = (found.scores || []).map((row, number) => ({ ...row, name: row.name || `row ${number}` }));
  for (const row of found.error ? [] : [{ name: "name", probability: "probability", decision: "decision" }, ...scores]) {
    const line = at("scores").insertRow();
    for (const cell of [row.name, row.probability, row.decision]) line.insertCell().textContent = cell; // text, never markup
  }
}

const kindOf = (file) => (file.name.toLowerCase().endsWith(".csv") ? "text/csv" : file.type);
at("file").addEventListener("change", (event) => event.target.files[0] && score(event.target.files[0], kindOf(event.target.files[0])));
at("score").addEventListener("click", () => score(at("rows").value, "text/csv"));
at("drop").addEventListener("dragover", (event) => { event.preventDefault(); at("drop").classList.add("over"); });
at("drop").addEventListener("dragleave", () => at("drop").classList.remove("over"));
at("drop").addEventListener("drop", (event) => {
  event.preventDefault();
  at("drop").classList.remove("over");
  const file = event.dataTransfer.files[0];
  if (file) score(file, kindOf(file));
});
fetch("/facts").then((answer) => answer.json()).then((facts) => { at("run").textContent = `${facts.run} (${facts.kind})`; });
