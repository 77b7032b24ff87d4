"""The wordings by which English sentences praise, correct, ask to change, move on.

Decides nothing: `kinds` does. All match sentences made `plain`: lower case, contractions written
out, quoted parts as underscores. Every gap is bounded, so that no text makes them slow.
"""

import re


def _any(*parts: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{part})" for part in parts))


# Building blocks. _PARTS are the nouns for pieces and qualities of any answer.
_IT = r"(?:it|this|that|these|those|them|everything|all of (?:it|this|that))"
_PARTS = (
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
_BETTER = (
    r"(?:shorter|longer|simpler|clearer|better|nicer|friendlier|warmer|softer|stronger|tighter"
    r"|easier|faster|cleaner|smaller|bigger|larger|higher|lower|lighter|darker|funnier|punchier"
    r"|snappier|gentler|calmer|plainer|briefer|sharper|smoother|brighter|deeper|broader|safer"
    r"|cheaper|closer|tidier|neater|kinder|politer|quieter|slower|stricter|richer|bolder|wittier"
    r"|crisper|leaner|denser|looser|more \w+|less \w+|fewer \w+)"
)
_MANNER = (
    r"(?:long|short|wordy|verbose|formal|informal|casual|technical|vague|generic|complicated"
    r"|complex|simple|simplistic|basic|stiff|dry|flowery|dramatic|salesy|robotic|boring|cheesy"
    r"|much|many|little|few|detailed|brief|abstract|advanced|academic|harsh|soft|pushy|blunt"
    r"|polite|cheerful|enthusiastic|friendly|serious|childish|slow|obvious|repetitive|broad"
    r"|narrow|dense|busy|literal|personal|emotional|hard to|difficult|clever|cute|terse|chatty"
    r"|familiar|strong|weak|confusing|general|shallow|high-level|corny|gushing|optimistic)"
)
_LANGUAGES = (
    r"(?:english|german|french|spanish|italian|portuguese|dutch|polish|russian|ukrainian|turkish"
    r"|arabic|hebrew|hindi|chinese|mandarin|japanese|korean|swedish|danish|norwegian|finnish"
    r"|greek|czech|hungarian|romanian|latin|vietnamese|thai|indonesian)"
)
_GOOD = (
    r"(?:good|great|perfect|excellent|awesome|amazing|wonderful|fantastic|brilliant|nice|lovely"
    r"|helpful|useful|superb|impressive|beautiful|neat|cool|clear|correct|right|accurate|ideal"
    r"|fine|enough|ok|okay|satisf(?:ied|ying|actory)|happy|acceptable|convincing)"
)
_BAD = (
    r"(?:bad|wrong|incorrect|false|inaccurate|mistaken|terrible|awful|horrible|useless|unhelpful"
    r"|outdated|broken|nonsense|rubbish|garbage|misleading|untrue|off topic|unusable|unreadable"
    r"|confusing|unclear|disappointing|ridiculous|off|unnecessary|irrelevant|incomplete|unfinished)"
)
_ADVERB = (
    r"(?:still|just|simply|totally|all|completely|clearly|plain|quite|really|very|so|rather"
    r"|pretty|absolutely|actually|also|now|even|a bit|a little|kind of|way|far|much|almost"
    r"|slightly|somewhat|again|always|both|not)"
)
_IS = r"(?:is|are|was|were|looks?|seems?|sounds?|feels?|reads?|reads like)"
_SUBJECT = (
    rf"(?:{_IT}|you|which|(?:the|your|line|step) (?:[\w-]+ ){{0,2}}[\w-]+|half of (?:it|this|that))"
)
_MADE = (
    r"(?:it|this|that|they|which|(?:the |your |this |that )?(?:code|script|function|command|program"
    r"|app|query|regex|formula|link|links|button|page|tests?|build|method|loop|example|snippet"
    r"|class|solution|answer|fix|patch|version|result|file|output|instructions?|steps?))"
)
_RUNS = (
    r"(?:work|run|compile|load|open|start|build|pass|match|render|respond|return|print|display"
    r"|install|parse|help|fit|make sense|answer|add up|sound|look|read|say|cover|address|mention)"
)

LOOKS_NEGATIVE_IS_NOT = _any(
    r"\bnot (?:(?:a|an|at|all|too|so|really|that|half|entirely|completely) ){0,2}(?:bad|wrong"
    r"|incorrect|terrible|awful|mistaken|shabby|problem|issue)\b(?: at all)?",
    r"\bno (?:problems?|worries|complaints?|issues?|objections?|mistakes?|errors?|more questions?"
    r"|further questions?|corrections?|changes)\b(?: (?:at all|here|needed|anymore|with \w+))*",
    r"\bnothing (?:wrong|to (?:change|add|fix|complain)|else|more)\b",
    r"\bno need to (?:change|fix|redo|add|apologi[sz]e|worry)\b(?: \w+)?",
    r"\b(?:would|do|will|need) not (?:change|need to change|need) (?:a thing|anything)(?: else)?\b",
    r"\bcan not complain\b",
    r"\bcould not (?:be|have (?:been|asked for|hoped for|done it)) (?:better|more)\b",
    r"\b(?:never|not) (?:been|seen|had) (?:(?:a|any) )?(?:better|clearer|nicer)\b",
    r"\bno longer (?:crash|fail|break|throw)\w*",
    r"\b(?:is|are|was) not (?:too|so|overly) \w+",
    r"\bdo not worry\b(?: about \w+)?",
    r"\b(?:not|never) (?:disappoint\w*|fails?)\b",
)

NOT_GOOD = _any(
    rf"\b(?:not|never|hardly|barely|far from|nowhere near|less than) (?:{_ADVERB} |a |an |any "
    rf"|the |as |that |too ){{0,2}}{_GOOD}\b",
    r"\bno good\b",
)

DISPLEASED = _any(
    rf"\b{_SUBJECT} {_IS} (?:{_ADVERB} ){{0,2}}(?:a |an )?(?:{_BAD}|joke|mess|shame|disaster)\b",
    rf"^(?:{_ADVERB} ){{0,2}}{_BAD}(?: (?:answer|again|result|output|one|work|job))?$",
    r"\bi (?:am|was|feel) (?:\w+ )?(?:disappointed|annoyed|frustrated|unhappy|fed up|confused|lost)",
    r"\bi (?:really |still )?(?:hate|dislike) (?:it|this|that|how|when|the|your)\b",
    r"\bdo not (?:really |quite |particularly )?(?:like|love|care for)\b",
    r"\b(?:i|it) (?:still |really |just )?(?:do|does|can|could) not (?:really |even |quite )?"
    r"(?:understand|follow|get it|read|make sense|help)",
    r"\b(?:did|does|do) not (?:really |even )?help\b",
    r"^(?:ugh|yuck|meh|seriously|nonsense|come on|what the|boo|yikes)\b",
    r"\b(?:waste of time|makes no sense|what a mess|let me down|you can do better|no luck)\b",
    r"\U0001f44e|\U0001f621|\U0001f620|\U0001f644|\U0001f612",
)

REASK = _any(
    r"\bi (?:just |already |clearly |specifically |only )?(?:asked|said|told you|requested"
    r"|mentioned|wrote)\b(?! (?:him|her|them|my|the (?:boss|doctor|teacher)))",
    r"\bas i (?:said|asked|mentioned|wrote)\b|\blike i (?:said|asked)\b",
    r"\blet me (?:rephrase|repeat|try again|be clearer|clarify|put it differently|ask again)\b",
    r"\b(?:to clarify|to be clear|in other words|i repeat|once again|asking again)\b",
    r"\bmy (?:actual |original |real )?question (?:was|is|remains)\b(?! about)",
    r"\b(?:did|does|do|have|has) not (?:really |even |actually )?answer(?:ed)?\b",
    r"\banswer (?:the|my) (?:actual |original |first )?question\b",
    r"\b(?:try|do (?:it|this|that)|say (?:it|that)|write it|start|run it|check|look) "
    r"(?:it )?(?:again|over|once more)\b|\bfrom scratch\b|\bone more time\b|\banother (?:try|go)\b",
)

CORRECTS = _any(
    r"\b(?:what )?i (?:actually |really )?(?:meant|mean)\b",
    r"\bi (?:actually |really |just |only )?(?:wanted|was (?:asking|looking|hoping|expecting)"
    r"|expected|had in mind)\b",
    r"\b(?:is|was|are|does|do) not (?:at all |really |quite |exactly |even )?"
    r"(?:what|how|why|where|who|when|the one|the \w+ i)\b",
    r"\bnot (?:quite|exactly|really|there yet|what i)\b",
    r"\byou (?:have |may have |seem to have |must have |apparently )?"
    r"(?:misunderst\w+|misread|mixed up|confused|forgot\w*|missed|left out|skipped|ignored|omitted"
    r"|overlooked|invented|made up|hallucinated|broke|mis\w+ed|got \w+(?: \w+)? wrong"
    r"|made (?:a|an|some|another|the same) (?:\w+ )?(?:mistakes?|errors?|typos?))\b",
    r"\byou (?:(?:were|are) (?:supposed|wrong|mistaken|repeating|missing)|should (?:have|not)"
    r"|could have|did not|do not (?!need|have to)|have not|only (?:\w+ed|gave|did)|keep \w+ing"
    r"|always|never|still)\b",
    r"^(?:did|do|have) you (?:even|actually|really)\b|^are you (?:really )?sure\b",
    r"^(?:is|are|was|were|should|does|did|do|could|would|have) not (?:it|that|this|there|you|the)\b",
    rf"\b(?:it|that|this|there|(?:the|your|line|step) (?:[\w-]+ ){{1,3}})should "
    rf"(?:be|have|say|not|read|return|start|end|come|only|also|include|use|sound|print|go)\b"
    r"(?! (?:fine|enough|good|all|ok|okay|it|great|perfect))",
    rf"\b{_SUBJECT} (?:is|are|was|were) (?:actually|in fact)\b|^actually,? (?:it|that|the|he|she"
    r"|they|there|you|we|i) ",
    r"\bthere (?:is|are) (?:still |also |a |an |some |another |one |two |three |several ){1,2}"
    r"(?:\w+ )?(?:mistakes?|errors?|typos?|bugs?|problems?|issues?)\b",
    rf"\b(?:wrong|incorrect) (?:{_PARTS}|person|place|city|country|year|day|time|file|one|way|way"
    r" round|topic|unit|currency|answer|result)\b",
)

FAULTS = _any(
    rf"\btoo {_MANNER}\b|\b{_IT} (?:{_IS} )(?:{_ADVERB} ){{0,2}}too \w+",
    rf"\bnot (?:very |so |at all |particularly |really )?{_MANNER}(?! of)(?: enough)?\b",
    r"\bnot enough\b|\b(?:short|long|clear|formal|detailed|specific|simple|good|concrete) enough$",
    r"^(?:far |way |much )?too \w+",
    rf"\b(?:lacks|lacking|misses|missing)\b(?! (?:you|him|her|my|someone|person))|\b{_IT} needs? "
    r"(?:to be|more|less|a|an|some|fewer)\b",
    rf"\b(?:could|can|would|might) be (?:a bit |a little |much |even |far |made |way )?{_BETTER}\b",
    r"\bwould be (?:\w+ )?(?:better|nicer|great|good|helpful|nice) (?:if|to have|with|without)\b",
    rf"\bwhere (?:is|are|did) (?:the|my|your) (?:\w+ )?{_PARTS}\b",
    r"\b(?:and|what about) (?:the|my) (?:other|second|third|rest|last|first|remaining)\b"
    r"(?! (?:world|time))",
    r"\bwhy (?:is|are|was) (?:it|this|that|your \w+|the \w+) (?:so|too|still|not)\b|^why so \w+",
    r"\bwhy (?:did|do|are|have|would) you (?:not|still|keep|always|even|ignore|repeat)\b",
    rf"\b{_MADE} (?:{_ADVERB} ){{0,2}}(?:does|do|did|is|are|will|would|can|could) not "
    rf"(?:{_ADVERB} ){{0,2}}{_RUNS}(?:ing)?\b",
    rf"\b{_MADE} (?:{_ADVERB} |immediately ){{0,2}}(?:crash(?:es|ed)|fail(?:s|ed)|breaks?|broke"
    r"|hangs|freezes|throws|raises|errors out|segfaults|gives (?:me )?(?:an|the wrong|a wrong)"
    r"|returns (?:nothing|none|null|the wrong|an empty|an error))\b",
    r"\bstill (?:getting|get|see|seeing|fail\w*|crash\w*|broken|not|wrong|too|have|has|the same"
    r"|missing|there|says|uses?|using|contains)\b",
    r"\bsame (?:error|problem|issue|mistake|thing|result|bug)(?: (?:again|as before|here)|$)",
    r"\bnothing (?:happens|happened|changed|changes)\b",
    r"\byour (?:\w+ ){1,3}(?:contradicts?|repeats?|stops?|ends? (?:abruptly|too)|crash\w+|fails?)\b",
    rf"\b(?:unnecessary|needless|redundant|superfluous|excessive) (?:\w+ )?{_PARTS}\b",
    rf"\b(?:repeats|repeated|contradicts|rambles|drags|stops (?:halfway|mid)|cut off)\b.{{0,20}}$",
)

CHANGES = _any(
    r"\b(?:next time|from now on|in (?:the )?future|going forward|for future|from here on)\b",
    r"\bi (?:would |do |usually |really )*(?:prefer|rather)\b(?! (?:not say|to go|to travel))",
    rf"\bi (?:would )?(?:want|need|like) (?:{_IT}|the \w+|your \w+) (?:to |in |as |with |without "
    rf"|{_BETTER})",
    r"\bi do not (?:want|need) (?!to\b|anything|any more|more help|help|you to worry)",
    rf"\b(?:mak|keep|turn|putt?|chang|shorten|cutt?|rewrit|rephras|reword|simplif|expand|trimm?"
    rf"|translat|convert|format|sett?|get)(?:e|y|i?ing)? {_IT}(?! (?:is|was|was|are|work))\b",
    rf"\b{_BETTER} (?:version|answer|response|reply|one|text|draft|explanation|wording|title"
    r"|option|alternative|summary|way|tone|please)\b",
    r"\b(?:another|different|alternative|new) (?:version|wording|phrasing|tone|style|format"
    r"|approach|angle)\b",
    rf"^(?:a |and )?(?:bit |little |lot |much |even |slightly |way )?{_BETTER}(?: \w+){{0,3}}$",
    rf"^(?:in|as|with|without|no|not|under|at most|max(?:imum)?|only|just|fewer|less|like) "
    rf"(?:(?!i\b|we\b|you\b|he\b|she\b)[\w-]+ ){{0,4}}(?:{_PARTS}|{_LANGUAGES}|prose|json|csv|yaml"
    rf"|html|plain|formal|informal|first person|third person|terms|pages?|characters?)"
    r"(?: please| only| at all| instead)?$",
    rf"\b(?:answer|reply|respond|speak|write|talk|continue|switch)(?: \w+){{0,2}} (?:in|to) "
    rf"(?:plain |simple |british |american )?{_LANGUAGES}\b(?! (?:teacher|class|course))",
    r"\b(?:in|with) (?:simple|simpler|plain|plainer|other|fewer|your own) (?:terms|words|english)",
    r"\blike i (?:am|was) (?:five|5|a)\b|\bget to the point\b|\bless is more\b|\btone it down\b",
    r"^(?:just|only) (?:the|give|show|tell|answer|one|send|list|write)\b",
    r"\binstead$|\binstead of \w+|^instead\b|\brather than \w+",
    r"\b(?:stop|quit|avoid|no more) \w+ing\b",
    r"\b(?:leave|take) (?:\w+ ){0,4}out\b|\bget rid of\b|\btone down\b|\bcut (?:down|out|back)\b",
    r"\bmake sure\b|\bstick to\b|\bbe (?:more|less|a bit|a little|briefer|brief|concise|specific"
    r"|direct|polite|honest|careful|precise|consistent|shorter|nicer|kinder|clearer)\b",
    r"\bsound (?:more|less|like|so|too)\b|\bno need (?:to|for)\b",
)

LEADS = re.compile(
    r"(?:(?:ok|okay|so|and|also|well|hey|hi|hello|oh|ah|wow|hm+|actually|just|please|pls|kindly"
    r"|now|then|next|but|however|though|maybe|perhaps|alright|right|sure|yes|yeah|yep|no|nope"
    r"|great|perfect|nice|good|cool|awesome|excellent|super|sorry|still|finally|again|another thing"
    r"|one more (?:thing|question)|(?:quick|follow-?up|another|next|different|last|unrelated|new)"
    r" (?:question|topic|thing)|on (?:a different|another) (?:note|topic)|by the way|btw"
    r"|(?:many )?thanks?(?: you)?(?: so much| a lot| very much)?(?: for [^,.;:!]{1,60}(?=[,;:]))?"
    r"|can you|could you|would you(?: mind)?|will you|can we|could we|you (?:can|could|should|must"
    r"|need to|have to)|i (?:would like|want|need) you to|try to|try|let us|feel free to"
    r"|is it possible to|any (?:chance|way) (?:to|you (?:can|could))|how about|why not|what if you"
    r"|i think you should|first|second|secondly|finally|lastly|instead)\b|-)[\s,;:!.-]*"
)
ONWARD_LEAD = re.compile(r"^(?:\w+[!.,]? ){0,4}(?:now|next|then|another|different|new|one more)\b")
WH = re.compile(
    r"(?:what|how|why|when|where|who|whom|whose|which)\b(?!ever\b)(?! (?:i|you) (?:really |actually )?"
    r"(?:meant|wanted|asked|need|said))"
)
WH_CLAUSE = re.compile(r"(?:which\b|\w+ (?:i|you|we|he|she|it|they|the|my|your) )")
AUX = re.compile(
    r"(?:is|are|was|were|do|does|did|can|could|would|should|will|has|have|had|am|may|might|any"
    r"|anything|so|and)\b"
)
ABOUT_REPLY = _any(
    rf"\bwhy (?:is|are|was) (?:it|this|that|your \w+|the {_PARTS}) (?:so|too|still|not)\b"
    r"|^why so \w+",
    r"\bwhy (?:did|do|are|have|would) you (?:not|still|keep|always|even|ignore|repeat)\b",
    rf"^where (?:is|are|did) (?:the|my|your) (?:\w+ )?{_PARTS}\b",
    r"^what about (?:the|my) (?:other|second|third|rest|last|remaining) (?:\w+ )?"
    r"(?:questions?|parts?|points?|half|ones?|items?|requests?)\b",
    r"\b(?:does|is|do) your (?:[\w-]+ ){1,2}(?:not|crash|fail|break|throw|raise|wrong|so|too)\b",
    r"^(?:what|how many times) (?:are you talking|do i have to|part of)\b",
)

NEW = re.compile(
    r"(?:write|draft|compose|create|generate|give me|tell me|show me|explain|describe|find|search"
    r"|look up|list|suggest|recommend|plan|help|translate|summari[sz]e|calculate|compute|solve"
    r"|compare|book|open|run|check|read|send|save|print|draw|design|build|implement|prepare"
    r"|invent|brainstorm|teach|name|pick|choose|guess|define|outline|prove|schedule|set up|remind"
    r"|deploy|install|test|debug|analy[sz]e|review|proofread|make (?:a|an|me|some|\d)|elaborate"
    r"|walk me|i (?:would like|want|need) to|i (?:also )?(?:need|want) (?:help|a|an|some|your help)"
    r"|i have (?:a|an|another|one|some|two))\b"
)
ON_REPLY = re.compile(
    rf"(?:write|translate|summari[sz]e|put|format|phrase|say|word|draft|list|print|give me)"
    rf" (?:{_IT}(?= (?:in|into|to|as|with|without|so|again|up|down|out|{_BETTER}|please)\b|$)"
    rf"|(?:your|the|that|this) (?:whole |entire |last |first )?(?:answer|reply|response|text"
    r"|explanation)\b)"
)
CARRIES_ON = re.compile(r"(?:translate|summari[sz]e|put|save|send|add|write|run|use)\b")
CHANGE_ALWAYS = re.compile(
    r"(?:us(?:e|ing)|avoid(?:ing)?|stop(?:ping)?|do not|never|always|keep(?:ing)?|includ(?:e|ing)"
    r"|mention(?:ing)?|add(?:ing)?|rewrit(?:e|ing)|rephras(?:e|ing)|reword(?:ing)?|redo(?:ing)?"
    r"|shorten(?:ing)?|simplif(?:y|ying)|condens(?:e|ing)|trim(?:ming)?|limit(?:ing)?|cit(?:e|ing)"
    r"|remember (?:to|that)|soften(?:ing)?|stick|lose|skip(?:ping)?|omit(?:ting)?|cut(?:ting)?"
    r"|leave|reformat(?:ting)?|respect|follow my|spell)\b(?! (?:worry|bother))"
)
CHANGE_PART = re.compile(
    r"(?:remov(?:e|ing)|delet(?:e|ing)|drop(?:ping)?|replac(?:e|ing)|swap(?:ping)?|renam(?:e|ing)"
    r"|fix(?:ing)?|correct(?:ing)?|chang(?:e|ing)|mov(?:e|ing)|convert(?:ing)?|edit(?:ing)?"
    r"|updat(?:e|ing)|split(?:ting)?|merg(?:e|ing)|refactor(?:ing)?|adjust(?:ing)?|mak(?:e|ing)"
    r"|tighten(?:ing)?|expand(?:ing)?|improv(?:e|ing)|revis(?:e|ing)|polish(?:ing)?|reduc(?:e|ing)"
    r"|turn(?:ing)?|put(?:ting)?|number(?:ing)?|shift|lower|raise|bold|highlight|format(?:ting)?"
    r"|group(?:ing)?|sort(?:ing)?|start(?:ing)?|end(?:ing)?|open|close|begin)\b"
)
POINTS_AT_REPLY = re.compile(rf"\b(?:{_IT}|your|{_PARTS})\b")

_OPENERS = r"(?:oh|wow|ah|ok|okay|yes|yeah|haha|hey|hi|no|and|so|now|finally|again|well|works|,)"
PRAISE = _any(
    r"\b(?:thanks|thx|tysm|cheers)\b(?! (?:note|to))|\bthank you\b(?! (?:note|card|letter|e-?mail"
    r"|message|speech|gift|page))|\bty$",
    r"\bappreciated?\b(?! (?:it )?if)",
    rf"^(?:{_OPENERS}[,!]? ){{0,3}}(?:(?:absolutely|really|very|so|just|that is|pretty) )?{_GOOD}"
    r"(?: (?:job|work|answer|stuff|idea|one|choice|point|catch|summary|explanation))?"
    r"(?=$| ?[,!;.-]| (?:but|now|thanks|thank|i|that|this|it|so|next|can|could|what|how|and)\b)",
    rf"\b(?:that|this|it|these|they|you|all|everything|which) (?:all )?{_IS} "
    rf"(?:{_ADVERB} ){{0,2}}(?:a )?{_GOOD}(?! (?:question|time|day))\b",
    r"\b(?:looks|sounds|reads|seems|works|reads) (?:\w+ )?(?:good|great|fine|perfect\w*|right"
    r"|well|nice\w*|like a charm|beautifully)\b",
    rf"^(?:{_OPENERS} ){{0,3}}(?:it|this|that|everything) (?:all |now |totally |really )?"
    r"(?:works|worked|helps|helped|did the trick|solved it|fixed it|makes sense|does it)\b",
    r"\b(?:i )?(?:really |absolutely |just )?(?:love|loved|like|liked|enjoy|enjoyed) (?:it|this"
    r"|that|how you|the way you|your)\b",
    r"\b(?:well done|good job|great job|nice work|spot on|lgtm|way to go|good work|nailed it)\b",
    r"\b(?:exactly|just|precisely) (?:what|the \w+) i (?:needed|wanted|was looking|meant|need)\b",
    r"\b(?:much|far|a lot|way) better(?: now)?$|\b(?:that|this|it) is better\b",
    r"\b(?:that|this) (?:will|would|should) (?:do|work|be (?:fine|enough|good|great|all|it))\b",
    r"^(?:exactly|precisely|correct|bingo|yay|yess+|hooray|makes sense|brilliant|lifesaver)$",
    r"\byou (?:are|were) (?:right|amazing|great|awesome|the best|a star|a lifesaver|so helpful)\b",
    r"\bthat is (?:all|it|everything)(?: i (?:need|needed|wanted))?$|\bi am good$|\ball set\b",
    r"\bof great help\b|\bbig help\b|\bvery helpful\b|\bproblem solved\b|\bcan not wait to try\b",
    r"\U0001f44d|\U0001f64f|\u2764|\U0001f60a|\U0001f60d|\U0001f389|\U0001f44f|:\)|<3",
)
ANOTHER_FORM = _any(
    rf"\b(?:a|an|one|something|anything) (?:bit |little |lot |much |slightly )?{_BETTER}$",
    rf"\b{_BETTER} (?:version|answer|response|reply|one|text|draft|explanation|wording|title"
    r"|option|alternative|summary|way|tone)\b(?! (?:of|to (?!say|put|write)))",
    r"\b(?:another|different|alternative|new) (?:version|wording|phrasing|tone|style|format)\b",
    rf"\b(?:more|less|fewer) {_PARTS}\b(?! (?:about|on|of|regarding))",
)
AFRESH = re.compile(rf"\b(?:again|instead|over)$|\b(?:more|less) \w+$|\b{_BETTER}$|\bthis time\b")
BUT = re.compile(
    r"\b(?:but|however|except|although|only that|just that|one thing)\b,? ?(?P<rest>.*)"
)
ONWARD = re.compile(
    r"^(?:please )?(?:continue|go on|keep going|go ahead|proceed|carry on|move on|next(?: one"
    r"| question| step| part| please)?|what next|more please|do it|yes please|please do|yes do"
    r"|let us (?:move on|continue|go|do (?:it|that))|on to the next \w+|tell me more)\b.{0,40}$"
)
NEUTRAL = re.compile(
    r"^(?:ok(?:ay)?|k|kk|hm+|uh+|um+|i see|got it|noted|understood|alright|right|sure|fine"
    r"|yes|yeah|yep|maybe|perhaps|whatever|hi|hello|hey|bye|goodbye|good (?:night|morning)"
    r"|see you|interesting|i will (?:try|check|see|think about it)(?: \w+)?|let me (?:check|think"
    r"|see|try)(?: \w+)?|never ?mind|lol|haha|oh|ah|later|test)$"
)
NO = re.compile(r"^(?:no|nope|nah|no no)$|^no,? (?:it|that|the|this|he|she|they|i|we|you)\b")
GETS_ERROR = re.compile(
    r"\b(?:i|we) (?:now |still |just )?(?:get|got|am getting|keep getting|see|am seeing|run into"
    r"|ran into) (?:[\w-]+ ){0,4}(?:errors?|exceptions?|tracebacks?|warnings?|stack trace|404|500)\b"
    r"|\b(?:it|this|that) (?:says|prints|shows|gives|raises|throws) (?:[\w-]+ ){0,3}"
    r"(?:errors?|exceptions?|\w+error)\b"
)

_CURLY = str.maketrans({"\u2019": "'", "\u2018": "'", "\u02bc": "'", "`": "'", "\u2014": "-"})
_SPELLINGS = (
    (re.compile(r"\b(ca|wo|sha)n'?t\b"), lambda m: {"ca": "can", "wo": "will"}.get(m[1], "shall")
     + " not"),
    (re.compile(r"\bcannot\b"), "can not"),
    (re.compile(r"\b(do|does|did|is|are|was|were|would|could|should|has|have|had)n'?t\b"),
     r"\1 not"),
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


FUNCTION_WORDS = frozenset(
    """a about after again all also am an and any are as at be because been before but by can could
    did do does down each for from had has have he her here him his how i if in into is it its just
    let like may me more most my no not now of off on only or other our out over please she should
    so some than thank thanks that the their them then there these they this those to too up us
    very was we were what when where which who why will with would yes you your""".split()
)
FOREIGN_WORDS = frozenset(
    """das ist nicht und der ein eine ich du wir sie mir bitte danke kannst auf mit zu den dem es
    aber auch wie wer wo que est les pas une des je tu nous vous merci avec dans sur mais le la et
    el los las una por para con gracias esto eso puedes pero como muy il che non per sono grazie
    questo di um uma nao voce obrigado isso het een niet dank jij ik met van kun te ten czy jest
    nie tak prosze lub det och inte jag tack ett som ve bir bu icin daha""".split()
)
