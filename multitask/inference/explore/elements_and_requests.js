"use strict";
// What all views need: elements of the page, numbers as text, and requests. The scripts of the page share their names.
// Text of users and models only enters the page through textContent. The token stays in a variable.

const $ = (id) => document.getElementById(id);
const COLOURS = ["#0b72c4", "#d1571c", "#2a8c5a", "#a2429e", "#b08a00", "#138a92", "#c43b55", "#6a5acd", "#7a6a4f", "#5f8f1f"];
let token = null;
let setup = null;

/** An element with attributes, children (text or elements) and custom properties of its style. */
function make(tag, attributes = {}, children = [], style = {}) {
  const svg = ["svg", "circle", "path", "title"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  for (const [name, value] of Object.entries(style)) element.style.setProperty(name, value);
  element.append(...[children].flat());
  return element;
}

/** A number with so many digits; small ones as a power of ten. */
function shown(number, digits = 3) {
  if (number === null || number === undefined) return "–";
  return number !== 0 && Math.abs(number) < 1e-3 ? number.toExponential(digits - 1) : Number(number.toPrecision(digits)).toString();
}
const signed = (number) => `${number >= 0 ? "+" : "−"}${shown(Math.abs(number), 2)}`;
const fixed = (number) => (number === null ? "–" : number.toFixed(2));

function say(text, isError = false) {
  $("status").textContent = text;
  $("status").classList.toggle("error", isError);
}

// Requests

async function ask(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  const options = body === undefined ? { headers, signal } : { method: "POST", headers, body: JSON.stringify(body), signal };
  const answer = await fetch(path, options);
  if (answer.status === 401) {
    await askForToken(token !== null);
    return ask(path, body, signal);
  }
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({ error: `the service answered ${answer.status}` }));
    throw new Error(problem.error);
  }
  return answer;
}

let asking = null;

function askForToken(wrong) {
  asking ??= new Promise((resolve) => {
    $("token-wrong").textContent = wrong ? "The service did not accept this token." : "";
    $("token-dialog").showModal();
    $("token-dialog").oncancel = (event) => event.preventDefault();
    $("token-form").onsubmit = (event) => {
      event.preventDefault();
      token = $("token").value;
      $("token").value = "";
      $("token-dialog").close();
      asking = null;
      resolve();
    };
  });
  return asking;
}

const running = {};

/** Run a view's requests and draw those that succeed; a newer call replaces one that still waits. */
async function update(view, requests, draw) {
  running[view]?.abort();
  const controller = new AbortController();
  running[view] = controller;
  say("Computing.");
  const answers = await Promise.allSettled(requests.map(([path, body]) => ask(path, body, controller.signal).then((answer) => answer.json())));
  if (running[view] !== controller) return;
  draw(answers.filter((answer) => answer.status === "fulfilled").map((answer) => answer.value));
  const problems = answers.flatMap((answer, index) => (answer.status === "rejected" ? [`${requests[index][1].model}: ${answer.reason.message}`] : []));
  if (view === current()) say(problems.join(". "), problems.length > 0);
}

const models = () => [...new Set([$("model").value, $("compare").value])].filter(Boolean);
