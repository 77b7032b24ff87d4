"""The wordings by which English sentences thank, move on, ask and request something new.

As with `patterns`, all match sentences made `plain`.
"""

import re

from claw.sdk.judges import words
from claw.sdk.judges.words import any_of

PRAISE = any_of(
    r"\bthanks to you\b|\byou \w+ (?:\w+ ){0,3}(?:well|perfectly|beautifully|brilliantly)$",
    r"\bi am (?:\w+ )?(?:happy|pleased|satisfied|glad|impressed|delighted|thrilled)\b(?! to)",
    r"\bsounds like a plan\b",
    rf"^(?:{words.OPENERS}[,!]? ){{0,2}}(?:what a |such a )?{words.GREAT} {words.PARTS}$",
    r"\b(?:thanks|thx|tysm|cheers)\b(?! (?:note|to))|\bthank you\b(?! (?:note|card|letter|e-?mail"
    r"|message|speech|gift|page))|\bty$",
    r"\bappreciated?\b(?! (?:it )?if)",
    rf"^(?:{words.OPENERS}[,!]? ){{0,3}}(?:(?:absolutely|really|very|so|super|just|that is"
    rf"|pretty) )?{words.GREAT}"
    r"(?: (?:job|work|answer|stuff|idea|one|choice|point|catch|summary|explanation))?"
    r"(?=$| ?[,!;.-]| (?:but|now|thanks|thank|i|that|this|it|so|next|can|could|what|how|and)\b)",
    rf"\b(?:that|this|it|these|they|you|all|everything|which) (?:all )?{words.IS} "
    rf"(?:{words.ADVERB} ){{0,2}}(?:a )?{words.GOOD}(?! (?:question|time|day))\b",
    r"\b(?:looks|sounds|reads|seems|works|reads) (?:\w+ )?(?:good|great|fine|perfect\w*|right"
    r"|well|nice\w*|like a charm|beautifully)\b",
    rf"^(?:{words.OPENERS}[,!]? ){{0,3}}(?:it|this|that|everything) (?:all |now |totally |really )?"
    r"(?:works|worked|helps|helped|answers|covers|clears|explains|resolves"
    r"|did the trick|solved it|fixed it|makes sense|does it)\b",
    r"(?:^|\bi )(?:really |absolutely |just )?(?:love|loved|like|liked|enjoy|enjoyed) (?:it|this"
    r"|that|how (?:you|\w+ (?:it|this|that|they))|the way (?:you|it)|your)\b",
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

SIGN = ":)"
"""praise, as the patterns read it"""

_WISHED = (
    r"(?: that)? i (?:(?:had|have|was|am|really|actually|always|originally|just|would|usually|ever"
    r"|first|been|could have) ){0,3}+(?:(?:want|need|wish|ask|hop|look|search|dream)(?:ed|ing)?"
    r"(?: you)?(?: for| of)?|ask(?:ed)?(?: you)? to (?:see|have)|requested|(?:had |have )?in mind"
    r"|mean|meant|after|expect(?:ed|ing)|imagin(?:ed|ing)|pictured|envisioned|thinking of|ordered"
    r"|described|like[ds]?|love[ds]?|prefer(?:red)?)\b(?: (?:it|this|them|things|to (?:be|know|hear"
    r"|see|read|find|have|get|learn|understand|say))\b)*+(?! (?:is|was|are|were|you|to|not|us|least"
    r"|instead|him|her|about|by|until|before)\b)(?!(?<=want|need|mean|like) ?:)"
)
_OF_WISH = r"(?:what|how|as|the way|all|everything|(?:the|a|an) (?:\w+ ){0,2}\w+)"
_FITS = (
    r"(?:is|was|are|were|looks?|does|did|has|gave me|gives me|hits|matches|fits|says|tells me|meets"
    r"|covers|answers)"
)
FULFILLED = any_of(
    rf"\b(?:that|this|it|those|these|which|here|everything|answer|reply|version) {_FITS}"
    rf" (?:like )?(?:{words.ADVERB} |exactly |precisely |finally |more or less )"
    rf"{{0,2}}{_OF_WISH}{_WISHED}",
    r"\b(?:exactly|just|precisely|absolutely|finally|perfectly|totally) (?:like )?"
    rf"{_OF_WISH}{_WISHED}",
    rf"\b{words.GREAT},? (?:(?!but\b|however\b)\w+,? ){{0,3}}(?:what|how|as|the way){_WISHED}$",
    r"\b(?:you (?:\w+ )?(?:gave|did|made|wrote|got|understood|nailed|delivered|hit|found|answered"
    r"|followed|kept|said)|i (?:finally |now )?(?:got|have|found))(?: me| it| this| us)?"
    rf" (?:{words.ADVERB} |exactly |precisely )?(?:what|how|as|the way|all|everything){_WISHED}",
    r"\b(?:even |much |far )?better than i (?:had |have |could have |was )?"
    r"(?:hop|expect|imagin|dream|ask)(?:ed|ing)(?: for| of)?$",
    r"\bmore than i (?:had |could have )?(?:hoped|dreamed)(?: for| of)?$",
    r"\b(?:just|exactly|precisely|perfect,?) as (?:requested|ordered|asked|wished|desired)$",
)
UNFULFILLED = re.compile(
    r"\b(?:not|never|hardly|barely|scarcely|nothing|neither|nor|no longer|isnt|ain't|aint|wasnt"
    r"|far from|anything but|opposite|instead|rather than|different|half|part of|some of|if|unless"
    r"|whether|wish|should|supposed|thought|why|without|less than|only|almost|nearly|close to)\b"
)

PRAISED_PART = re.compile(rf"(?:{words.OPENERS} )*(?:what a |such a )?{words.GREAT} \w")

CLAUSE = re.compile(
    r", | (?:so|but|and) (?=(?:please |can you |could you |i |just )?(?:give|write|use|make|tell"
    r"|explain|show|send|put|keep|want|need|would|prefer|like)\b)"
)

NO_THANKS = re.compile(r"^no,? thank(?:s| you)$")

ONWARD = re.compile(
    r"^(?:please )?(?:continue|go on|keep going|go ahead|proceed|carry on|move on|next(?: one"
    r"| question| step| part| please)?|what next|more please|do it|yes please|please do|yes do"
    r"|let us (?:move on|continue|go|do (?:it|that))|(?:do|start|try|go to|see) (?:the )?(?:next"
    r"|other) \w+|on to the next \w+|tell me more)\b.{0,40}$"
)

NEUTRAL = re.compile(
    r"^(?:ok(?:ay)?|k|kk|hm+|uh+|um+|i see|got it|noted|understood|alright|right|sure|fine"
    r"|yes|yeah|yep|maybe|perhaps|whatever|hi|hello|hey|bye|goodbye|good (?:night|morning)"
    r"|see you|interesting|i will (?:try|check|see|think about it)(?: \w+)?|let me (?:check|think"
    r"|see|try)(?: \w+)?|never ?mind|lol|haha|oh|ah|later|test|no,? thank(?:s| you)|no)$"
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

PLEASE_LAST = re.compile(r",? (?:please|pls|thanks|thank you)$")

ONWARD_LEAD = re.compile(r"^(?:\w+[!.,]? ){0,4}(?:now|next|then|another|different|new|one more)\b")

WH = re.compile(
    r"(?:what|how|why|when|where|who|whom|whose|which)\b(?!ever\b)(?! (?:i|you) (?:really "
    r"|actually )?"
    r"(?:meant|wanted|asked|need|said))"
)

WH_CLAUSE = re.compile(r"(?:which\b|\w+ (?:i|you|we|he|she|it|they|the|my|your) )")

AUX = re.compile(
    r"(?:is|are|was|were|do|does|did|can|could|would|should|will|has|have|had|am|may|might|any"
    r"|anything|so|and)\b"
)

INVERTED = re.compile(
    r"(?:is|are|was|were|do|does|did|can|could|would|should|will|has|have)"
    r" (?:it|this|that|there|i|we|you|they|he|she|the|a|an|my)\b"
)
ASKS_WITHIN = re.compile(r"\b(?:how (?:many|much|long|far|often)|what|which|who|where|when)\b")

NEW = re.compile(
    r"(?:write|draft|compose|create|generate|give me|tell me|show me|explain|describe|find|search"
    r"|look up|list|suggest|recommend|plan|help|translate|summari[sz]e|calculate|compute|solve"
    r"|compare|book|open|run|check|read|send|save|print|draw|design|build|implement|prepare"
    r"|invent|brainstorm|teach|name|pick|choose|guess|define|outline|prove|schedule|set up|remind"
    r"|deploy|install|email|forward|share|post|upload|submit|order|buy|cancel"
    r"|try (?:a|an|another)|test|debug|analy[sz]e|review|proofread|make (?:a|an|me|some|\d)"
    r"|elaborate"
    r"|walk me|i (?:would like|want|need) to|i (?:also )?(?:need|want|would (?:like|love))"
    r" (?:help|a|an|some|your help)"
    r"|i have (?:a|an|another|one|some|two))\b"
)

PASSES_ON = re.compile(
    r"(?:translate|summari[sz]e|proofread|read|analy[sz]e|check|review|correct|improve|rewrite|edit"
    r"|explain|reply to|answer|respond to|classify|look at|consider|paraphrase)\b(?! (?:it|your)\b)"
)

CARRIES_ON = re.compile(r"(?:translate|summari[sz]e|put|save|send|add|write|run|use)\b")

OPERATES = re.compile(r"(?:run|open|test|send|deploy|build|install|save)\b")
