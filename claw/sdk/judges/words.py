"""Word lists and building blocks for the patterns: what answers consist of, how they may be.

`plain` brings a sentence into the form that all patterns match: lower case, contractions written
out, quoted parts as underscores.
"""

import re

MAX_COMPARED_CHARS = 4000
"""so much of a request is read to compare it with another one"""

# PARTS are the nouns for pieces and qualities of any answer.
IT = r"(?:it|this|that|these|those|them|everything|all of (?:it|this|that))"
PARTS = (
    r"(?:answers?|repl(?:y|ies)|responses?|outputs?|versions?|drafts?|texts?|paragraphs?"
    r"|sentences?|lines?|words?|wording|phras(?:e|es|ing)|headings?|headers?|headlines?|titles?"
    r"|subject line|bullets?|bullet points?|lists?|tables?|emojis?|emoticons?|exclamation \w+"
    r"|punctuation|jargon|buzzwords?|slang|sources?|references?|citations?|quotes?|links?|urls?"
    r"|examples?|details?|explanations?|comments?|docstrings?|type hints|disclaimers?|caveats?"
    r"|warnings?|summary|sections?|parts?|bits?|tone|style|format(?:ting)?|markdown|bold|italics"
    r"|steps?|hashtags?|adjectives?|fluff|filler|padding|greetings?|intro(?:duction)?|opening"
    r"|endings?|conclusion|closing|signature|sign-?off|apolog(?:y|ies)|names?|dates?|numbers?"
    r"|figures?|units?|prices?|spelling|grammar|voice|tense|language|columns?|rows?|code"
    r"|variables?|functions?|imports?|indentation|layout|structure|length|order|reasoning|steps)"
)
BETTER = (
    r"(?:shorter|longer|simpler|clearer|better|nicer|friendlier|warmer|softer|stronger|tighter"
    r"|easier|faster|cleaner|smaller|bigger|larger|higher|lower|lighter|darker|funnier|punchier"
    r"|snappier|gentler|calmer|plainer|briefer|sharper|smoother|brighter|deeper|broader|safer"
    r"|cheaper|closer|tidier|neater|kinder|politer|quieter|slower|stricter|richer|bolder|wittier"
    r"|crisper|leaner|denser|looser|more \w+|less \w+|fewer \w+)"
)
MANNER = (
    r"(?:long|short|wordy|verbose|formal|informal|casual|technical|vague|generic|complicated"
    r"|complex|simple|simplistic|basic|stiff|dry|flowery|dramatic|salesy|robotic|boring|cheesy"
    r"|much|many|little|few|detailed|brief|abstract|advanced|academic|harsh|soft|pushy|blunt"
    r"|polite|cheerful|enthusiastic|friendly|serious|childish|slow|obvious|repetitive|broad"
    r"|narrow|dense|busy|literal|personal|emotional|hard to|difficult|clever|cute|terse|chatty"
    r"|familiar|strong|weak|confusing|general|shallow|high-level|corny|gushing|optimistic)"
)
FLAWED = (
    r"(?:wordy|long-winded|verbose|vague|generic|stiff|robotic|boring|cheesy|harsh|pushy|blunt|repetitive"
    r"|flowery"
    r"|salesy|complicated|childish|convoluted|clumsy|awkward|dull|corny|preachy|bland|messy|sloppy)"
)
LANGUAGES = (
    r"(?:english|german|french|spanish|italian|portuguese|dutch|polish|russian|ukrainian|turkish"
    r"|arabic|hebrew|hindi|chinese|mandarin|japanese|korean|swedish|danish|norwegian|finnish"
    r"|greek|czech|hungarian|romanian|latin|vietnamese|thai|indonesian)"
)
GOOD = (
    r"(?:good|great|perfect|excellent|awesome|amazing|wonderful|fantastic|brilliant|nice|lovely"
    r"|helpful|useful|handy|valuable|superb|impressive|beautiful|neat|cool|clear|correct|right|accurate|ideal"
    r"|fine|enough|ok|okay|satisf(?:ied|ying|actory)|happy|acceptable|convincing)"
)
GREAT = GOOD.replace("|right", "").replace("|fine|enough|ok|okay", "")
BAD = (
    r"(?:bad|wrong|incorrect|false|inaccurate|mistaken|terrible|awful|horrible|useless|unhelpful"
    r"|outdated|broken|dead|made up|invented|cut off"
    r"|nonsense|rubbish|garbage|misleading|untrue|off topic|unusable|unreadable"
    r"|confusing|unclear|disappointing|ridiculous|off|unnecessary|irrelevant|incomplete|unfinished)"
)
ADVERB = (
    r"(?:still|just|simply|totally|all|completely|clearly|plain|quite|really|very|so|rather"
    r"|pretty|absolutely|actually|also|now|even|a bit|a little|kind of|way|far|much|almost"
    r"|slightly|somewhat|again|always|both|not)"
)
IS = r"(?:is|are|was|were|looks?|seems?|sounds?|feels?|reads?|reads like)"
SUBJECT = (
    rf"(?:{IT}|you|which|(?:this|that|these|those) (?:\w+ )?{PARTS}"
    rf"|(?:the|your|line|step) (?:[\w-]+ ){{0,2}}[\w-]+|half of (?:it|this|that))"
)
MADE = (
    r"(?:it|this|that|they|which|(?:the |your |this |that )?(?:code|script|function|command|program"
    r"|app|query|regex|formula|link|links|button|page|tests?|build|method|loop|example|snippet"
    r"|class|import|call|request|server|upload|solution|answer|fix|patch|version|result|file|output|instructions?|steps?))"
)
RUNS = (
    r"(?:work|run|compile|load|open|start|build|pass|match|render|respond|return|print|display"
    r"|install|parse|help|fit|make sense|answer|add up|sound|look|read|say|cover|address|mention)"
)
OPENERS = (
    r"(?:oh|wow|ah|ok|okay|yes|yeah|haha|yay|nice|great|hey|hi|no|and|so|now|finally|again|well"
    r"|works|,)"
)


def word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


FUNCTION_WORDS = word_set(
    """a about after again all also am an and any are as at be because been before but by can could
    did do does down each for from had has have he her here him his how i if in into is it its
    just let like may me more most my no not now of off on only or other our out over please she
    should so some than thank thanks that the their them then there these they this those to too
    up us very was we were what when where which who why will with would yes you your"""
)
EMPTY_WORDS = word_set(
    """actually again convinced doubt think thx answer answered asked ask at bad correct even
    exactly good great happy help helpful helps incorrect know like looking mean meant message
    misread misunderstood never ok okay question quite read really right said say second
    seriously still sure terrible thing try understand useful useless want wanted work works
    working wrong"""
)
FOREIGN_WORDS = word_set(
    """das ist nicht und der ein eine ich du wir sie mir bitte danke kannst auf zu es aber auch wie
    wer wo que est les pas une des je tu nous vous merci avec dans sur mais le la et el los las
    una por para con gracias esto eso puedes pero como muy il che non sono grazie questo di um
    uma nao voce obrigado isso het een niet dank jij ik met kun te czy jest nie tak prosze lub
    det och inte jag tack ett som ve bir bu icin daha"""
)


def stem(word: str) -> str:
    """Return the word without its commonest endings."""
    cut = re.sub(r"(?:ing|ed|es|ly|s)$", "", word) if len(word) > 4 else word
    return re.sub(r"(.)\1$", r"\1", cut).rstrip("e")


def content_stems(text: str) -> frozenset[str]:
    """Return the stems of the words that carry a text's content."""
    found = re.findall(r"[^\W_]+", text[:MAX_COMPARED_CHARS].lower())
    return frozenset(stem(word) for word in found if word not in FUNCTION_WORDS)


def any_of(*parts: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{part})" for part in parts))


_CURLY = str.maketrans({"\u2019": "'", "\u2018": "'", "\u02bc": "'", "`": "'", "\u2014": "-"})
_SPELLINGS = (
    (
        re.compile(r"\b(ca|wo|sha)n'?t\b"),
        lambda m: {"ca": "can", "wo": "will"}.get(m[1], "shall") + " not",
    ),
    (re.compile(r"\bcannot\b"), "can not"),
    (
        re.compile(r"\b(do|does|did|is|are|was|were|would|could|should|has|have|had)n'?t\b"),
        r"\1 not",
    ),
    (re.compile(r"\b(it|that|this|what|here|there|where|who|how|he|she)'s\b"), r"\1 is"),
    (re.compile(r"\blet's\b"), "let us"),
    (re.compile(r"\bthats\b"), "that is"),
    (re.compile(r"\bi'?m\b"), "i am"),
    (re.compile(r"\b(i|you|we|they)'?ve\b"), r"\1 have"),
    (re.compile(r"\b(you|we|they)'re\b"), r"\1 are"),
    (re.compile(r"\b(\w+)'ll\b"), r"\1 will"),
    (re.compile(r"\b(i|you|we|they|he|she|it|that)'d\b"), r"\1 would"),
    (re.compile(r"\bu\b"), "you"),
    (re.compile(r"[*#]+"), " "),
    (re.compile(r"\s+"), " "),
)


def plain(sentence: str) -> str:
    """Return the sentence as the patterns read it."""
    text = sentence.translate(_CURLY).lower()
    for pattern, written_out in _SPELLINGS:
        text = pattern.sub(written_out, text)
    return text.strip(" .!,;:-\t\n")
