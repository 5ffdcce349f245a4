// The page: what it says in two languages, what the visitor types, and what the worker answers.
const MOST_CHARACTERS = 5000
const MOST_LINES = 64

const TEXTS = {
  en: {
    title: (source, target) => `${source} to ${target}`,
    sides: ["Source text", "Target text"],
    about:
      "A Transformer as in “Attention Is All You Need”, which runs in this browser: your text stays " +
      "on this device. It knows the kind of text that it was trained on, and nothing else.",
    hint: "One sentence a line; each is translated on its own.",
    keys: "Ctrl+Enter translates.",
    translate: "Translate",
    run: "Run",
    examples: "Examples",
    loading: () => "Loading the model ...",
    ready: () => "Ready.",
    translating: (line, lines) => `Line ${line} of ${lines} ...`,
    done: () => "Done.",
    doubtful: "The model is far less sure of this line than usual; it may be wrong.",
    empty: () => "There is no text yet. Type a sentence first.",
    longText: (count) =>
      `This text is too long: it has ${count} characters, and this page takes up to ${MOST_CHARACTERS}.`,
    manyLines: (count) => `These are ${count} lines, and this page takes up to ${MOST_LINES} at once.`,
    longLine: (line, count, limit) =>
      `Line ${line} is too long: it has ${count} tokens (pieces of words), and this page takes up to ` +
      `${limit}. Write one sentence a line.`,
    failed: (reason) => `The model does not run here: ${reason}`,
    noRuntime: () => "Transformers.js is missing: run “npm install” in the folder of this page.",
    noWebAssembly: () =>
      "This browser has no WebAssembly, which the model needs. Use a recent Firefox, Chrome, Edge or " +
      "Safari.",
  },
  zh: {
    title: (source, target) => `${source}译${target}`,
    sides: ["原文", "译文"],
    about:
      "论文“Attention Is All You Need”中的 Transformer 模型，在本浏览器中运行：你输入的文字不会离开这台设备。" +
      "它只懂训练时见过的那类文本。",
    hint: "每行一句，逐句翻译。",
    keys: "按 Ctrl+Enter 开始翻译。",
    translate: "翻译",
    run: "运行",
    examples: "示例",
    loading: () => "正在加载模型……",
    ready: () => "就绪。",
    translating: (line, lines) => `第 ${line} 行，共 ${lines} 行……`,
    done: () => "完成。",
    doubtful: "模型对这一行远不如平时有把握，译文可能有误。",
    empty: () => "还没有文字，请先输入一句话。",
    longText: (count) => `文字太长：共 ${count} 个字符，本页最多处理 ${MOST_CHARACTERS} 个。`,
    manyLines: (count) => `共 ${count} 行，本页一次最多处理 ${MOST_LINES} 行。`,
    longLine: (line, count, limit) =>
      `第 ${line} 行太长：共 ${count} 个词元（词的片段），本页最多处理 ${limit} 个。请每行只写一句。`,
    failed: (reason) => `模型无法在此运行：${reason}`,
    noRuntime: () => "缺少 Transformers.js：请在本页所在的文件夹中运行“npm install”。",
    noWebAssembly: () => "此浏览器不支持模型所需的 WebAssembly，请使用较新的 Firefox、Chrome、Edge 或 Safari。",
  },
}
const FINE = ["loading", "ready", "translating", "done"]
const HOPELESS = ["noRuntime", "noWebAssembly"]

const element = (id) => document.getElementById(id)
const task = await (await fetch("task.json")).json()
const tags = [task.source, task.target].map((side) => side?.replaceAll("_", "-"))
let language = navigator.language.startsWith("zh") ? "zh" : "en"
let status = ["loading"]
let busy = false

// Name a language by its code, such as "de"; other sides have no name but their own.
function languageName(tag) {
  try {
    return new Intl.DisplayNames(language, { type: "language", fallback: "none" }).of(tag)
  } catch {
    return undefined
  }
}

function showTexts() {
  const texts = TEXTS[language]
  const named = tags.map(languageName)
  const sides = named.map((name, index) => name ?? tags[index] ?? texts.sides[index])
  document.documentElement.lang = language
  document.title = element("title").textContent = texts.title(...sides)
  for (const part of document.querySelectorAll("[data-text]"))
    part.textContent = texts[part.dataset.text]
  if (named.includes(undefined)) element("translate").textContent = texts.run
  for (const [index, id] of ["source", "target"].entries()) {
    element(`${id}-name`).textContent = sides[index]
    element(id).lang = named[index] ? tags[index] : ""
  }
  const other = language === "en" ? "zh" : "en"
  element("language").lang = other
  element("language").textContent = { en: "English", zh: "中文" }[other]
  showStatus(...status)
}

function showStatus(state, ...values) {
  status = [state, ...values]
  element("status").textContent = TEXTS[language][state](...values)
  element("status").className = FINE.includes(state) ? "" : "problem"
  element("translate").setAttribute("aria-disabled", busy || HOPELESS.includes(state))
}

function showExamples() {
  for (const text of task.examples) {
    const button = document.createElement("button")
    Object.assign(button, { type: "button", className: "quiet", lang: element("source").lang })
    button.textContent = text
    button.onclick = () => {
      element("source").value = text
      translate()
    }
    const item = document.createElement("li")
    item.append(button)
    element("examples").lastElementChild.append(item)
  }
  element("examples").hidden = task.examples.length === 0
}

function start() {
  const worker = new Worker("worker.js", { type: "module" })
  worker.onerror = () => showStatus("noRuntime")
  worker.onmessage = ({ data }) => {
    if (data.text === undefined) {
      busy &&= ["ready", "translating"].includes(data.state)
      showStatus(data.state, ...(data.values ?? []))
    } else {
      const line = document.createElement("p")
      Object.assign(line, { dir: "auto", textContent: data.text })
      element("target").append(line)
      if (data.doubtful) {
        const hint = document.createElement("small")
        Object.assign(hint, { className: "hint", textContent: TEXTS[language].doubtful })
        hint.lang = language
        line.append(document.createElement("br"), hint)
      }
    }
  }
  return worker
}

function translate() {
  const text = element("source").value
  const lines = text.trimEnd().split("\n").map((line) => line.trim())
  if (busy || HOPELESS.includes(status[0])) return
  if (!text.trim()) showStatus("empty")
  else if (text.length > MOST_CHARACTERS) showStatus("longText", text.length)
  else if (lines.length > MOST_LINES) showStatus("manyLines", lines.length)
  else {
    busy = true
    element("target").replaceChildren()
    showStatus(...status)
    worker.postMessage(lines)
  }
}

element("language").onclick = () => {
  language = language === "en" ? "zh" : "en"
  showTexts()
}
element("form").onsubmit = (event) => {
  event.preventDefault()
  translate()
}
element("source").onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate()
}
showTexts()
showExamples()
element("notice").remove()
element("page").hidden = false
element("source").focus()
const worker = typeof WebAssembly === "object" ? start() : showStatus("noWebAssembly")
