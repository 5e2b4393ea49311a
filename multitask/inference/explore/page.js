"use strict";
// Asks the service for the page's views and answers, which come as HTML, and inserts them. The token stays in a variable.

const $ = (id) => document.getElementById(id);
const running = {};
let token = null;
let asking = null;

function say(text, isError = false) {
  $("status").textContent = text;
  $("status").classList.toggle("error", isError);
}

async function ask(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  if (answer.status === 401) {
    await askForToken(token !== null);
    return ask(path, body, signal);
  }
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `the service answered ${answer.status}`);
  return answer;
}

function askForToken(wrong) {
  asking ??= new Promise((resolve) => {
    $("token-wrong").textContent = wrong ? "The service did not accept this token." : "";
    $("token-dialog").showModal();
    $("token-dialog").oncancel = (event) => event.preventDefault();
    $("token-form").onsubmit = () => {
      token = $("token").value;
      $("token").value = "";
      $("token-dialog").close();
      asking = null;
      resolve();
    };
  });
  return asking;
}

/** Insert HTML and keep the focus. The page's policy forbids style attributes, so shares come as data. */
function insert(place, html) {
  const focused = document.activeElement.id;
  place.innerHTML = html;
  for (const each of place.querySelectorAll("[data-share]")) each.style.setProperty("--share", Math.min(each.dataset.share, 1) || 0);
  if (focused) $(focused)?.focus();
}

async function save(file) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await file.blob());
  link.download = decodeURIComponent(file.headers.get("Content-Disposition").split("''")[1]);
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Send a form for each model and show the answers that come; a newer request replaces one that still waits. */
async function update(form, button) {
  if (!form.checkValidity()) return say("Type a sentence.", true);
  const place = form.parentElement.querySelector(".answers");
  const body = Object.fromEntries(new FormData(form, button));
  const chosen = [...document.querySelectorAll("#models select")].map((each) => each.value).filter(Boolean);
  const models = chosen.length ? [...new Set(chosen)].slice(0, "first" in place.dataset ? 1 : 2) : [null];
  running[form.id]?.abort();
  const mine = (running[form.id] = new AbortController());
  say("Computing.");
  const file = button?.getAttribute("formaction");
  const one = (model) => ask(file ?? form.getAttribute("action"), { ...body, model }, mine.signal);
  const answers = await Promise.allSettled(models.map((model) => one(model).then((answer) => (file ? save(answer) : answer.text()))));
  if (running[form.id] !== mine) return;
  if (!file) insert(place, answers.map((each) => each.value ?? "").join(""));
  const problems = answers.flatMap((each, i) => (each.status === "rejected" ? [`${models[i] ?? "error"}: ${each.reason.message}`] : []));
  say(problems.join(". "), problems.length > 0);
}

function show(view) {
  for (const section of document.querySelectorAll("[data-view]")) section.hidden = section.dataset.view !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const form = document.querySelector(`[data-view="${view}"] form`);
  if (form) update(form);
}

const current = () => location.hash.slice(1) || "predict";

/** Predict these texts: a sentence, or the two of a pair. */
function take(texts) {
  const { first, second } = $("predict-form").elements;
  [first.value, second.value = ""] = JSON.parse(texts);
  history.pushState(null, "", "#predict");
  show("predict");
  first.focus();
}

function choose(dot) {
  for (const other of dot.parentElement.children) other.classList.toggle("chosen", other === dot);
  dot.parentElement.nextElementSibling.textContent = dot.textContent;
}

document.addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.target.getAttribute("action")) update(event.target, event.submitter);
});

document.addEventListener("change", ({ target }) => {
  if (target.id === "example") return target.selectedOptions[0].dataset.texts && take(target.selectedOptions[0].dataset.texts);
  if (target.name === "objective") {
    for (const set of target.form.querySelectorAll("fieldset")) set.hidden = set.disabled = set.name !== target.value;
  }
  if (target.closest("#models")) show(current());
  else if (target.form?.getAttribute("action") && target.tagName !== "TEXTAREA") update(target.form);
});

document.addEventListener("click", ({ target }) => target.tagName === "BUTTON" && target.dataset.texts && take(target.dataset.texts));
document.addEventListener("pointerover", ({ target }) => target.closest(".map circle") && choose(target.closest(".map circle")));
document.addEventListener("keydown", (event) => {
  const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!move || !event.target.matches(".map")) return;
  event.preventDefault();
  const dots = [...event.target.querySelectorAll("circle:not(.query)")];
  const place = dots.findIndex((dot) => dot.matches(".chosen"));
  choose(dots[((place < 0 && move < 0 ? 0 : place) + move + dots.length) % dots.length]);
});
window.addEventListener("hashchange", () => show(current()));

ask("explore/views")
  .then((answer) => answer.text())
  .then((html) => {
    insert($("views"), html);
    show(current());
  })
  .catch((error) => say(error.message, true));
