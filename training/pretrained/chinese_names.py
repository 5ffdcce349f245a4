"""Write foreign names in Chinese as they sound.

The phonemes are those of `english-phonemes`, the model that comes with the package. A consonant and
the vowel after it become one character, as in the tables by which Chinese newspapers write foreign
names (GB/T 17693.1 has the one for English); so does a consonant alone. An n or ng after the vowel
makes it another character.
"""

from collections.abc import Sequence
from unicodedata import normalize

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import vanilla_transformer

# One column for each sound of a syllable: no vowel, then the vowels, then those before n or ng.
SOUNDS = ("", "a", "e", "er", "i", "o", "u", "ai", "au", "an", "en", "in", "on")
SYLLABLES = {
    "": "　阿埃厄伊奥乌艾奥安恩因翁",
    "B": "布巴贝伯比博布拜鲍班本宾邦",
    "P": "普帕佩珀皮波普派保潘彭平庞",
    "D": "德达德德迪多杜戴道丹登丁东",
    "T": "特塔特特蒂托图泰陶坦滕廷通",
    "G": "格加格格吉戈古盖高甘根金贡",
    "K": "克卡凯克基科库凯考坎肯金孔",
    "V": "夫瓦韦弗维沃武怀沃万文温翁",
    "W": "伍瓦韦沃威沃武怀沃万文温翁",
    "F": "夫法费弗菲福富法福凡芬芬丰",
    "Z": "兹扎泽泽齐佐祖宰藻赞曾津宗",
    "S": "斯萨塞瑟西索苏赛绍桑森辛松",
    "SH": "什沙谢舍希肖舒夏绍尚申欣雄",
    "ZH": "日扎热热日若茹扎饶让仁任容",
    "JH": "奇贾杰哲吉乔朱贾焦詹真金琼",
    "CH": "奇查切彻奇乔丘柴乔钱琴钦琼",
    "HH": "赫哈黑赫希霍胡海豪汉亨欣洪",
    "M": "姆马梅默米莫穆迈毛曼门明蒙",
    "N": "恩纳内纳尼诺努奈瑙南嫩宁农",
    "L": "尔拉莱勒利洛卢莱劳兰伦林隆",
    "R": "尔拉雷勒里罗鲁赖劳兰伦林龙",
    "Y": "伊亚耶耶伊约尤亚尧扬延英永",
}
ALIKE = {"TH": "S", "DH": "S", "NG": "N"}  # consonants that are written like another
VOWELS = {
    **{"AA": "a", "AE": "a", "AH": "a", "EH": "e", "EY": "e", "ER": "er", "IH": "i", "IY": "i"},
    **{"AO": "o", "OW": "o", "OY": "o", "UH": "u", "UW": "u", "AY": "ai", "AW": "au"},
}
WITH_N = {"a": "an", "e": "en", "er": "en", "i": "in", "o": "on", "u": "en", "ai": "an", "au": "an"}


def in_chinese(names: Sequence[str]) -> list[str]:
    """Write names in Chinese characters, by how an English speaker pronounces them."""
    folder = vanilla_transformer.pretrained("english-phonemes")
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    letters = [
        normalize("NFKD", name).encode("ascii", "ignore").decode() for name in names
    ]  # the model knows no letters with accents
    spoken = vanilla_transformer.translate(model, tokenizer, letters)
    return [characters(phonemes.split()) for phonemes in spoken]


def characters(phonemes: Sequence[str]) -> str:
    """Return the characters of a word, given the phonemes of CMUdict without stress."""
    sounds = [ALIKE.get(each, each) for each in phonemes]
    text, position = "", 0
    while position < len(sounds):
        consonant = "" if sounds[position] in VOWELS else sounds[position]
        position += consonant != ""
        vowel = VOWELS.get(sounds[position], "") if position < len(sounds) else ""
        following = sounds[position + 1 : position + 3] if vowel else []
        position += vowel != ""
        if following[:1] == ["N"] and not (following[1:] and following[1] in VOWELS):
            vowel = WITH_N[vowel]
            position += 1
        elif following[:1] == ["R"] and not (following[1:] and following[1] in VOWELS):
            position += 1  # Carter is said as if it had no r
        text += SYLLABLES[consonant][SOUNDS.index(vowel)]
    return text
