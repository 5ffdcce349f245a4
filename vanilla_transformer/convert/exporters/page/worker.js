// The model, in a thread of its own, so that the page answers while it computes.
import { env, pipeline } from "./node_modules/@huggingface/transformers/dist/transformers.min.js"

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

const loading = pipeline("translation", "model", { dtype: "fp32", device: "wasm" })
loading.then(() => postMessage({ state: "ready" }), failed)

self.onmessage = ({ data }) => translate(data).catch(failed)

async function translate(lines) {
  const translator = await loading
  const positions = translator.model.config.max_position_embeddings
  const limit = Math.min(MOST_TOKENS, positions)
  const lengths = lines.map((line) => (line ? translator.tokenizer.encode(line).length : 0))
  const long = lengths.findIndex((length) => length > limit)
  if (long >= 0) {
    postMessage({ state: "longLine", values: [long + 1, lengths[long], limit] })
    return
  }
  for (const [index, line] of lines.entries()) {
    postMessage({ state: "translating", values: [index + 1, lines.length] })
    const max_new_tokens = Math.min(lengths[index] + MORE_TOKENS, positions)
    const text = line && (await translator(line, { max_new_tokens }))[0].translation_text
    postMessage({ text })
  }
  postMessage({ state: "done" })
}

function failed(error) {
  postMessage({ state: "failed", values: [error.message] })
}
