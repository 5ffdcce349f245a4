// A text as the training sources would have it, and its translation as the text was typed. The same
// as written_forms.py of the package, from the same facts.
const WORD = /([\p{L}\p{Nl}\p{No}]+(?:'[\p{L}\p{Nl}\p{No}]+)*)/u
const WORDS = new RegExp(WORD, "gu")
const FIRST = new RegExp(`${WORD.source}(?![,'\\p{L}\\p{N}_])`, "u")
const TELLING = 100
const DOTTED_I = /^(tr|tur|az|aze)([-_]|$)/i

export class WrittenForms {
  constructor(facts) {
    Object.assign(this, facts)
    const [source] = this.languages
    this.places = new Map(this.common.map((word, place) => [word, place]))
    const forms = [...this.common, ...this.forms].map((form) => [lower(form, source), form])
    const sharp = forms.map(([word, form]) => [word.replaceAll("ß", "ss"), form])
    this.usual = new Map([...sharp, ...forms])
    this.contracted = new Map(this.contractions.map((it) => [it.replace("'", ""), it.indexOf("'")]))
  }

  sourceOf(text) {
    const [language] = this.languages
    const kind = caseOf(text, language, this.places)
    const isUnusual = this.unusual.includes(kind)
    const usual = (word) => {
      let small = lower(word, language)
      const place = this.contracted.get(small)
      if (place && (isUnusual || word === small || text.startsWith(word)))
        [word, small] = [word, small].map((form) => `${form.slice(0, place)}'${form.slice(place)}`)
      if (!isUnusual) return word
      if (kind === "title" && !this.places.has(small)) return this.usual.get(small) ?? word
      return this.usual.get(small) ?? (this.is_upper ? upper(word, language) : small)
    }
    const tokens = (isUnusual ? plain(text) : text).split(" ")
    text = tokens.map((token) => (isAddress(token) ? token : token.replace(WORDS, usual))).join(" ")
    if (isUnusual && this.is_raised && !isAddress(tokens[0]))
      text = text.replace(/[\p{L}\p{N}]/u, (sign) => upper(sign, language))
    return text + this.markMissing(text)
  }

  markMissing(text) {
    if (!this.mark || !/[\p{L}\p{M}\p{N}]$/u.test(text.trimEnd())) return ""
    const [first] = plain(text).match(FIRST) ?? [""]
    return this.marks[lower(first, this.languages[0])] ?? this.mark
  }

  translationOf(text, translation) {
    if (this.markMissing(text) && /\p{Po}$/u.test(translation))
      translation = translation.slice(0, -1).trimEnd()
    const [source, target] = this.languages
    const kinds = [text, this.sourceOf(text)].map((each) => caseOf(each, source, new Map()))
    if (this.has_cased_targets && kinds[0] === "upper" && kinds[1] !== "upper")
      translation = upper(translation, target)
    return translation
  }
}

// The sentences of a line. Browsers also split behind abbreviations, as in "Mr. Smith"; a short
// word with a capital may be one.
export function sentencesOf(line, language) {
  const found = []
  const segmenter = new Intl.Segmenter(language || "en", { granularity: "sentence" })
  for (const { segment } of segmenter.segment(line)) {
    if (/(^|\s)\p{Lu}[\p{L}.]{0,3}\.\s+$/u.test(found.at(-1) ?? "")) found.push(found.pop() + segment)
    else found.push(segment)
  }
  return found.map((sentence) => sentence.trim()).filter(Boolean)
}

// Sentences as a line again.
export function joined(sentences, language) {
  return sentences.filter(Boolean).join(/^(zh|zho|chi|cmn|yue|ja|jpn)\b/i.test(language) ? "" : " ")
}

function caseOf(text, language, places) {
  const [hasLower, hasUpper] = [text !== upper(text, language), text !== lower(text, language)]
  if (!(hasLower && hasUpper)) return hasLower ? "lower" : hasUpper ? "upper" : ""
  const found = plain(text).match(WORDS) ?? []
  const isSmall = (word) => /^\p{Lowercase}/u.test(word)
  if (5 * found.filter(isSmall).length >= found.length) return "mixed"
  const capitalised = found.slice(1).filter((word) => !isSmall(word))
  const inside = new Set(capitalised.map((word) => lower(word, language)))
  const known = [...inside].filter((word) => places.has(word)).map((word) => places.get(word))
  return known.length > 1 || Math.min(...known) < TELLING ? "title" : "mixed"
}

function isAddress(token) {
  const inside = token.replace(/^[\p{P}\p{S}]+/u, "").replace(/[\p{P}\p{S}]+$/u, "")
  return /[^\p{L}'-]/u.test(inside)
}

function plain(text) {
  return text.replace(/[\u2018\u2019\u02bc\u00b4`]/g, "'")
}

function lower(text, language) {
  if (DOTTED_I.test(language)) text = text.replaceAll("I", "\u0131").replaceAll("\u0130", "i")
  return text.toLowerCase()
}

function upper(text, language) {
  if (DOTTED_I.test(language)) text = text.replaceAll("i", "\u0130")
  return text.split("ß").map((part) => part.toUpperCase()).join("ß")
}
