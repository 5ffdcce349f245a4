// The model, in a thread of its own, so that the page answers while it computes.
import {
  env,
  LogitsProcessor,
  LogitsProcessorList,
  pipeline,
} from "./node_modules/@huggingface/transformers/dist/transformers.min.js"
import { joined, sentencesOf, WrittenForms } from "./forms.js"

const MOST_TOKENS = 200 // of a sentence; attention grows with the square of the length
const MORE_TOKENS = 50 // that a translation may have than its source (Section 6.1 of the paper)

const here = new URL(".", import.meta.url).href
const runtime = `${here}node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded`
env.allowRemoteModels = false
env.allowLocalModels = true
env.localModelPath = new URL(here).pathname // with an address it finds no tokenizer
env.useBrowserCache = env.useWasmCache = false // a new export in the same place is another model
env.backends.onnx.wasm.wasmPaths = { mjs: `${runtime}.mjs`, wasm: `${runtime}.wasm` }
env.backends.onnx.wasm.numThreads = 1 // more need headers that a plain server does not send

// Mean log-probability of the tokens of a greedy search, whose next token is the most likely one.
class TokenScore extends LogitsProcessor {
  total = 0
  tokens = 0

  _call(ids, logits) {
    const row = logits[0].data
    const best = row.reduce((most, logit) => Math.max(most, logit), -Infinity)
    this.total -= Math.log(row.reduce((sum, logit) => sum + Math.exp(logit - best), 0))
    this.tokens += 1
    return logits
  }
}

const loading = pipeline("translation", "model", { dtype: "fp32", device: "wasm" })
const asking = fetch("task.json").then((answer) => answer.json())
loading.then(() => postMessage({ state: "ready" }), failed)

self.onmessage = ({ data }) => translate(data).catch(failed)

async function translate(lines) {
  const translator = await loading
  const { doubtful_below, written_forms } = await asking
  const forms = new WrittenForms(written_forms)
  const [source, target] = forms.languages
  const parts = lines.map((line) => (forms.are_sentences ? sentencesOf(line, source) : [line].filter(Boolean)))
  const positions = translator.model.config.max_position_embeddings
  const limit = Math.min(MOST_TOKENS, positions)
  const lengths = parts.map((part) => part.map((text) => translator.tokenizer.encode(forms.sourceOf(text)).length))
  const long = lengths.findIndex((part) => part.some((length) => length > limit))
  if (long >= 0) {
    postMessage({ state: "longLine", values: [long + 1, Math.max(...lengths[long]), limit] })
    return
  }
  for (const [index, sentences] of parts.entries()) {
    postMessage({ state: "translating", values: [index + 1, lines.length] })
    const found = []
    for (const [place, text] of sentences.entries()) {
      const score = new TokenScore()
      const logits_processor = new LogitsProcessorList()
      logits_processor.push(score)
      const max_new_tokens = Math.min(lengths[index][place] + MORE_TOKENS, positions)
      const [best] = await translator(forms.sourceOf(text), { max_new_tokens, logits_processor })
      const pieces = Math.max(1, lengths[index][place] - 1) // `sureness` of batch_translation.py
      const size = Math.max(1, [...forms.sourceOf(text)].length) / pieces
      const sure = score.total / score.tokens + 3 * Math.log(size)
      const doubtful = sure < (doubtful_below ?? -Infinity)
      found.push({ text: forms.translationOf(text, best.translation_text), doubtful })
    }
    const text = joined(found.map((each) => each.text), target)
    postMessage({ text, doubtful: found.some((each) => each.doubtful) })
  }
  postMessage({ state: "done" })
}

function failed(error) {
  postMessage({ state: "failed", values: [error.message] })
}
