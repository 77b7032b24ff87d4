"""The wordings by which English sentences correct, complain and ask to change the reply.

Decides nothing: `kinds` does. All match sentences made `plain` (see `words`). Every gap is
bounded, so that no text makes them slow.
"""

import re

from claw.sdk.judges import words
from claw.sdk.judges.words import any_of

LOOKS_NEGATIVE_IS_NOT = any_of(
    r"\bnot (?:(?:a|an|at|all|too|so|really|that|half|entirely|completely) ){0,2}(?:bad|wrong"
    r"|incorrect|terrible|awful|mistaken|shabby|problem|issue)\b(?: at all)?",
    r"\bno (?:problems?|worries|complaints?|issues?|objections?|mistakes?|errors?|more questions?"
    r"|further questions?|corrections?|changes)\b(?: (?:at all|here|needed|anymore|with \w+))*",
    r"\bnothing (?:wrong|to (?:change|add|fix|complain)|else|more)\b",
    r"\bno need to (?:change|fix|redo|add|worry)\b(?: \w+)?|\bno need to apologi[sz]e$",
    r"\b(?:would|do|will|need) not (?:change|need to change|need) (?:a thing|anything)(?: else)?\b",
    r"\bcan not complain\b",
    r"\bcould not (?:be|have) (?:\w+ ){0,3}(?:better|more|happier)\b",
    r"\b(?:never|not) (?:been|seen|had) (?:(?:a|any) )?(?:better|clearer|nicer)\b",
    r"\bno longer (?:crash|fail|break|throw)\w*",
    rf"\b(?:is|are|was) not (?:too|so|overly) (?!{words.GOOD}\b)\w+",
    r"\bdo not worry\b(?: about \w+)?",
    r"\b(?:not|never) (?:disappoint\w*|fails?)\b",
)

NOT_GOOD = any_of(
    rf"\b(?:not|never|hardly|barely|far from|nowhere near|less than) (?:{words.ADVERB} |a |an |any "
    rf"|the |as |that |too ){{0,2}}{words.GOOD}\b",
    r"\bno good\b",
)

DISPLEASED = any_of(
    r"\bdo not get (?:it|this|that|the|what|why|how|any)\b|\b(?:it|this|that|is) (?:is )?hard to "
    r"(?:read|follow|understand|use)\b",
    rf"\b{words.SUBJECT} {words.IS} (?:{words.ADVERB} ){{0,2}}(?:a |an )?(?:{words.BAD}|joke|mess"
    rf"|shame|disaster)\b",
    rf"^(?:{words.ADVERB} ){{0,2}}{words.BAD}(?: (?:answer|again|result|output|one|work|job))?$",
    r"\bi (?:am|was|feel) (?:\w+ )?(?:disappointed|annoyed|frustrated|unhappy|fed up|confused"
    r"|lost)",
    r"\bi (?:really |still )?(?:hate|dislike|can not stand) (?!my\b|our\b|being\b|when my\b|to\b)",
    r"\bdo not (?:really |quite |particularly )?(?:like|love|care for)\b",
    r"\b(?:i|it) (?:still |really |just )?(?:do|does|can|could) not (?:really |even |quite )?"
    r"(?:understand|follow|get it|read|make sense|help)",
    r"\b(?:did|does|do) not (?:really |even )?help\b",
    r"^(?:almost|nearly|close|so close)(?: there)?$",
    r"^(?:ugh|yuck|meh|seriously|nonsense|come on|what the|boo|yikes)\b",
    r"\b(?:waste of time|makes no sense|what a mess|let me down|you can do better|no luck)\b",
    r"\U0001f44e|\U0001f621|\U0001f620|\U0001f644|\U0001f612",
)

SAYS_WHAT = re.compile(
    r"^(?:no,? )?(?:the|your|line|step)\b|(?:[,:] ?|\b(?:because|since|as) )(?:\S+ ){2,}\S+"
)

REASK = any_of(
    r"\b(?:we|i) (?:have )?already (?:discussed|covered|talked|agreed|did|explained|gave)\b",
    r"^(?:check|recheck|double-?check|review|show|verify|reread|read) (?:your|my (?:message"
    r"|question|request|last))\b",
    r"^(?:once )?again, ",
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

CORRECTS = any_of(
    r"\b(?:do not think|doubt|not (?:so |really |quite )?(?:sure|convinced)) (?:that |if |about )?"
    r"(?:it|this|that|the \w+|you)\b(?!.*\b(?:problem|issue|necessary|matters?)\b)",
    r"\b(?:sounds?|reads?|looks?|feels?) (?:\w+ )?(?:like|as if|as though) "
    r"(?!a (?:charm|plan|pro|dream|good|great|native)|fun|me\b)",
    r"\b(?:what )?i (?:actually |really )?(?:meant|mean)\b",
    r"\bi (?:actually |really |just |only )?(?:wanted|was (?:asking|looking|hoping|expecting)"
    r"|expected|had in mind)\b",
    r"\b(?:is|was|are|does|do) not (?:at all |really |quite |exactly |even )?"
    r"(?:what|how|why|where|who|when|the one|the \w+ i)\b",
    r"\bnot (?:quite|exactly|really|there yet|what i)\b",
    r"\b(?:never|hardly|barely|scarcely|far from|nothing like|anything but|opposite of|instead of"
    rf"|different from|half of|part of) (?:{words.ADVERB} )?(?:what|how|the way) i\b",
    r"\byou (?:have |may have |seem to have |must have |apparently )?"
    r"(?:misunderst\w+|misread|mixed up|confused|forgot\w*|missed|left out|skipped|ignored|omitted"
    r"|overlooked|invented|made up|hallucinated|broke|mis\w+ed|got \w+(?: \w+)? wrong"
    r"|made (?:a|an|some|another|the same) (?:\w+ )?(?:mistakes?|errors?|typos?))\b",
    r"\byou (?:(?:were|are) (?:supposed|wrong|mistaken|repeating|missing)|should (?:have|not)"
    r"|could have|did not|do not (?!need|have to)|have not|only (?:\w+ed|gave|did)|keep \w+ing"
    r"|always|never|still)\b",
    r"^(?:did|do|have) you (?:even|actually|really)\b|^are you (?:really )?sure\b",
    r"^(?:is|are|was|were|should|does|did|do|could|would|have) not (?:it|that|this|there|you"
    r"|the)\b",
    r"\b(?:(?:it|that|this|there) |(?:the|your|line|step) (?:[\w-]+ ){1,3})should "
    r"(?:be|have|say|not|read|return|start|end|come|only|also|include|use|sound|print|go)\b"
    r"(?! (?:fine|enough|good|all|ok|okay|it|great|perfect))",
    rf"\b{words.SUBJECT} (?:is|are|was|were) (?:actually|in fact)\b|^actually,? (?:it|that|the|he"
    rf"|she"
    r"|they|there|you|we|i) ",
    r"\bthere (?:is|are) (?:still |also |a |an |some |another |one |two |three |several ){1,2}"
    r"(?:\w+ )?(?:mistakes?|errors?|typos?|bugs?|problems?|issues?)\b",
    r"\b(?:is|are|was|spelled|called|named) .{0,40}\byou (?:wrote|put|said|called|used|spelled"
    r"|gave)\b",
    r"\byou (?:gave|wrote|put|used|dropped|removed|added|changed|answered|sent|returned|included"
    r"|repeated|assumed|took|lost|turned|started|ended|cut|stopped|replaced|swapped|picked|chose)\b"
    rf"(?!.*\b{words.GREAT}\b)",
    r"\byou are (?!welcome|doing|getting|being so)\w+ing\b",
    rf"^(?:{words.IT}|(?:the|your|this|that) (?:\w+ )?{words.PARTS}) (?:is|was|are|were|does|do|did"
    r"|has|have|can|could|will|would|should) not\b(?! (?:matter|urgent|important|necessary|my|me"
    r"|about|for me|surpris\w+|hurt|mean))",
    r"^(?:no,? )?not (?:that(?! i\b)|this|the|these|those|in|with|like|a|an)\b",
    r"\b(?:(?:that|this|it|those) (?:is|are|was)|prints|gives|gave|shows|returns|has|have"
    r"|got|uses|used|took|picked|chose) (?:me |us )?"
    r"(?:the|a) wrong\b",
    r"\b(?:more|less|longer|shorter) than i (?:needed|need|asked|wanted|want)\b",
    r"\b(?:this|that|here) is what i (?:need|want|mean|would like) ?:",
    r"^what i (?:need|want|am after|asked)\b|\bi (?:just|only) (?:need|want)(?:ed)? (?!to\b)",
    r", (?:and )?not (?!sure|only|that|bad|to|really|yet|at all)(?:\w+ ){0,3}\w+$",
    rf"\b(?:wrong|incorrect) (?:{words.PARTS}|person|place|city|country|year|day|time|file|one"
    rf"|way|way"
    r" round|topic|unit|currency|answer|result)\b",
)

FAULTS = any_of(
    rf"\b(?:{words.MADE}|you) (?:never (?!mind)\w+|contradicts?)\b",
    rf"^(?:a bit|a little|slightly|rather|somewhat|kind of) (?!{words.GREAT}|{words.BETTER})[\w-]+",
    rf"\b{words.PARTS} can go\b",
    r"\bwill not (?:understand|like|get|believe|accept|fit|buy|read) (?:it|this|that)\b",
    r"\b(?:will|would|might) (?:\w+ )?(?:notice|know|think|suspect|see|reali[sz]e|guess) "
    r"(?:that )?(?:it|this) (?:is|was|looks|sounds|comes)\b",
    rf"\btoo {words.MANNER}\b|\b{words.IT} (?:{words.IS} )(?:{words.ADVERB} ){{0,2}}too \w+",
    rf"\bnot (?:very |so |at all |particularly |really )?{words.MANNER}(?! of)(?: enough)?\b",
    rf"\b{words.SUBJECT} {words.IS} (?:{words.ADVERB} ){{0,2}}{words.FLAWED}\b|\bfull of \w+$",
    r"\b(?:i|we) can not (?:use|send|submit|read|post|share|print|hand in) (?:it|this|that)\b",
    r"\bnot enough\b|\b(?:short|long|clear|formal|detailed|specific|simple|good|concrete) enough$",
    r"^(?:far |way |much )?too \w+",
    rf"\b(?:lacks|lacking|misses|missing)\b(?! (?:you|him|her|my|someone|person))"
    rf"|\b{words.IT} needs? "
    r"(?:to be|more|less|a|an|some|fewer)\b",
    rf"\b(?:could|can|would|might) be (?:a bit |a little |much |even |far |made "
    rf"|way )?{words.BETTER}\b",
    r"\bwould be (?:\w+ )?(?:better|nicer|great|good|helpful|nice) (?:if|to have|with|without)\b",
    rf"\bwhere (?:is|are|did) (?:the|my|your) (?:\w+ )?{words.PARTS}\b",
    r"\b(?:and|what about) (?:the|my) (?:other|second|third|rest|last|first|remaining)\b"
    r"(?! (?:world|time))",
    r"\bwhy (?:is|are|was) (?:it|this|that|your \w+|the \w+) (?:so|too|still|not)\b|^why so \w+",
    r"\bwhy (?:did|do|are|have|would) (?:not you|you (?:not|still|keep|always|even|ignore"
    r"|repeat))\b",
    rf"\b{words.MADE} (?:{words.ADVERB} ){{0,2}}(?:does|do|did|is|are|will|would|can|could) not "
    rf"(?:{words.ADVERB} ){{0,2}}{words.RUNS}(?:ing)?\b",
    rf"\b{words.MADE} (?:{words.ADVERB} |immediately ){{0,2}}(?:crash(?:es|ed)|fail(?:s|ed)"
    rf"|breaks?|broke"
    r"|hangs|freezes|throws|raises|errors out|segfaults|ignores|drops|skips|loses|overwrites"
    r"|swallows|gives (?:me )?(?:an|the wrong|a wrong)"
    r"|returns (?:nothing|none|null|the wrong|an empty|an error))\b",
    r"\bstill (?:getting|get|see|seeing|fail\w*|crash\w*|broken|not|wrong|too|have|has|the same"
    r"|missing|there|says|uses?|using|contains)\b",
    r"\bsame (?:error|problem|issue|mistake|thing|result|bug)(?: (?:again|as before|here)|$)",
    r"\bnothing (?:happens|happened|changed|changes)\b",
    r"\byour (?:\w+ ){1,3}(?:contradicts?|repeats?|stops?|ends? (?:abruptly|too)|crash\w+"
    r"|fails?)\b",
    rf"\b(?:unnecessary|needless|redundant|superfluous|excessive) (?:\w+ )?{words.PARTS}\b",
    r"\b(?:repeats|repeated|contradicts|rambles|drags|stops (?:halfway|mid)|cut off)\b.{0,20}$",
)

CHANGES = any_of(
    r"\bi would (?:drop|cut|remove|change|replace|use|put|add|start|end|make|leave|keep|say)\b",
    r"\b(?:output|return|print|send|give|(?:reply|answer|respond) with|write) only\b",
    r"\bso (?:please )?(?:use|no|do not|keep|avoid|write|make|skip)\b",
    rf"^{words.LANGUAGES}(?: only)?$",
    r"\b(?:next time|from now on|in (?:the )?future|going forward|for future|from here on)\b",
    r"\bi (?:would |do |usually |really )*(?:prefer|rather)\b(?! (?:not say|to go|to travel))",
    rf"\bi (?:would )?(?:want|need|like) (?:{words.IT}|the \w+|your \w+) (?:to |in |as |with "
    rf"|without "
    rf"|{words.BETTER})",
    r"\bi do not (?:want|need) (?!to\b|anything|any more|more help|help|you to worry)",
    rf"\b(?:mak|keep|turn|putt?|chang|shorten|cutt?|rewrit|rephras|reword|simplif|expand|trimm?"
    rf"|translat|convert|format|sett?|get)(?:e|y|i?ing)? {words.IT}(?! (?:is|was|was|are|work))\b",
    rf"\b{words.BETTER} (?:version|answer|response|reply|one|text|draft|explanation|wording|title"
    r"|option|alternative|summary|tone|please)\b",
    r"\b(?:another|different|alternative|new) (?:version|wording|phrasing|tone|style|format"
    r"|approach|angle)\b",
    rf"^(?:a |and )?(?:bit |little |lot |much |even |slightly "
    rf"|way )?{words.BETTER}(?: \w+){{0,3}}$",
    rf"^(?:in|as|with|without|no|not|under|at most|max(?:imum)?|only|just|fewer|less|like) "
    rf"(?:(?!i\b|we\b|you\b|he\b|she\b)[\w-]+ ){{0,4}}(?:{words.PARTS}|{words.LANGUAGES}|prose"
    rf"|json|csv|yaml"
    rf"|html|plain|formal|informal|first person|third person|terms|pages?|characters?)"
    r"(?: please| only| at all| instead)?$",
    rf"\b(?:can|could|may) (?:i|we) (?:have|get|see) (?:{words.IT}|(?:the|a|your) {words.PARTS})"
    r" (?:in|as|with|without)\b",
    rf"^(?:(?:one|two|three|four|five|\d+) )?(?:short )?{words.PARTS} (?:only|max|at most|please)$",
    rf"^(?:speak|write|answer|use) {words.LANGUAGES}\b",
    r"\b(?:we|i) (?:do not|never|usually|always|normally|typically) (?:say|write|use|call|spell"
    r"|sound"
    r"|talk|speak|sign)\b",
    r"^(?:say|call it|write|put|try) _",
    rf"\b(?:answer|reply|respond|speak|write|talk|continue|switch)(?: \w+){{0,2}} (?:in|to) "
    rf"(?:plain |simple |british |american )?{words.LANGUAGES}\b(?! (?:teacher|class|course))",
    r"\b(?:in|with) (?:simple|simpler|plain|plainer|other|fewer|your own) (?:terms|words|english)",
    r"\blike i (?:am|was) (?:five|5|a)\b|\bget to the point\b|\bless is more\b|\btone it down\b",
    r"^(?:just|only) (?:the|give|show|tell|answer|one|send|list|write)\b",
    r"\binstead$|\binstead of \w+|^instead\b|\brather than \w+",
    r"\b(?:stop|quit|avoid|no more) \w+ing\b",
    r"\b(?:leave|take) (?:\w+ ){0,4}out\b|\bget rid of\b|\btone down\b|\bcut (?:down|out|back)\b",
    r"\bnot just\b|\bmake sure\b|\bstick to\b|\bbe (?:more|less|a bit|a little|briefer"
    r"|brief|concise|specific"
    r"|direct|polite|honest|careful|precise|consistent|shorter|nicer|kinder|clearer)\b",
    r"\bsound (?:more|less|like|so|too)\b|\bno need (?:to|for)\b",
)

ANOTHER_FORM = any_of(
    r"\bsame (?:thing |one |text |answer )?(?:again )?but\b",
    r"^(?:please )?(?:just|only) (?:the|answer|(?:give|show|tell|send) me (?:the|one|your))\b",
    rf"\b(?:a|an|one|something|anything) (?:bit |little |lot |much |slightly )?{words.BETTER}$",
    rf"\b{words.BETTER} (?:version|answer|response|reply|one|text|draft|explanation|wording|title"
    r"|option|alternative|summary|tone)\b(?! (?:of|to (?!say|put|write)))",
    r"\b(?:another|different|alternative|new) (?:version|wording|phrasing|tone|style|format)\b",
    rf"\b(?:more|less|fewer) {words.PARTS}\b(?! (?:about|on|of|regarding))",
)

IN_PLAIN_WORDS = re.compile(
    r"\b(?:in|with) (?:simple|simpler|plain|plainer|other|fewer|your own) (?:terms|words|english)"
    r"|\blike i (?:am|was) (?:five|5|a)\b"
)

AFRESH = re.compile(
    r"\bnot just\b|^(?:give|show|tell|i want|i need) .{1,80},"
    r" not (?!too|more|only|very|that|sure)\w+(?: \w+)?$|"
    rf"\b(?:instead|over)$|\b(?:more|less) \w+$|\b{words.BETTER}$|\bthis time\b"
)

AGAIN = re.compile(r"\bagain(?:$|,)|\bonce more$")

CHANGE_ALWAYS = re.compile(
    r"(?:us(?:e|ing)|avoid(?:ing)?|stop(?:ping)?|do not|never|always|keep(?:ing)?|includ(?:e|ing)"
    r"|mention(?:ing)?|add(?:ing)?|rewrit(?:e|ing)|rephras(?:e|ing)|reword(?:ing)?|redo(?:ing)?"
    r"|shorten(?:ing)?|simplif(?:y|ying)|condens(?:e|ing)|trim(?:ming)?|limit(?:ing)?|cit(?:e|ing)"
    r"|remember (?:to|that)|soften(?:ing)?|stick|lose|skip(?:ping)?|omit(?:ting)?|cut(?:ting)?"
    r"|leave|reformat(?:ting)?|respect|follow my|spell)(?= )(?! (?:worry|bother))"
)

CHANGE_PART = re.compile(
    r"(?:remov(?:e|ing)|delet(?:e|ing)|drop(?:ping)?|replac(?:e|ing)|swap(?:ping)?|renam(?:e|ing)"
    r"|fix(?:ing)?|correct(?:ing)?|chang(?:e|ing)|mov(?:e|ing)|convert(?:ing)?|edit(?:ing)?"
    r"|updat(?:e|ing)|split(?:ting)?|merg(?:e|ing)|refactor(?:ing)?|adjust(?:ing)?|mak(?:e|ing)"
    r"|tighten(?:ing)?|expand(?:ing)?|improv(?:e|ing)|revis(?:e|ing)|polish(?:ing)?|reduc(?:e|ing)"
    r"|turn(?:ing)?|put(?:ting)?|number(?:ing)?|shift|lower|raise|bold|highlight|format(?:ting)?"
    r"|group(?:ing)?|sort(?:ing)?|start(?:ing)?|end(?:ing)?|open|close|begin)(?= )"
)

POINTS_AT_REPLY = re.compile(rf"\b(?:{words.IT}|your|{words.PARTS})\b|_{{2,}}")

ON_REPLY = re.compile(
    r"(?:write|answer|reply|respond|speak|talk|explain) (?:in|with|without|like|as|more|less)\b|"
    rf"(?:write|translate|summari[sz]e|put|format|phrase|say|word|draft|list|print|give me)"
    rf" (?:{words.IT}(?= (?:in|into|to|as|from|like|for|by|with|without|so|again|up|down|out"
    rf"|{words.BETTER}"
    rf"|please)\b|$)"
    rf"|(?:your|the|that|this) (?:whole |entire |last |first )?(?:answer|reply|response|text"
    r"|explanation)\b)"
)

ABOUT_REPLY = any_of(
    rf"\bwhy (?:is|are|was) (?:it|this|that|your \w+|the {words.PARTS}) (?:so|too|still|not)\b"
    r"|^why so \w+",
    r"\bwhy (?:did|do|are|have|would) (?:not you|you (?:not|still|keep|always|even|ignore"
    r"|repeat))\b",
    rf"^where (?:is|are|did) (?:the|my|your) (?:\w+ )?{words.PARTS}\b",
    r"^what about (?:the|my) (?:other|second|third|rest|last|remaining) (?:\w+ )?"
    r"(?:questions?|parts?|points?|half|ones?|items?|requests?)\b",
    r"\b(?:does|is|do) your (?:[\w-]+ ){1,2}(?:not|crash|fail|break|throw|raise|wrong|so|too)\b",
    r"^why are you (?:being )?(?:so|too|always)\b",
    rf"^where is the rest\b|^what happened (?:to|with) (?:the|my) (?:\w+ )?{words.PARTS}\b",
    rf"^why (?:all|so many|so much|the)\b.{{0,30}}\b{words.PARTS}",
    r"^(?:what|how many times) (?:are you talking|do i have to|part of)\b",
)

GETS_ERROR = re.compile(
    r"\b(?:i|we|and) (?:now |still |just )?(?:get|got|am getting|keep getting|see|am seeing"
    r"|run into"
    r"|ran into) (?:[\w-]+ ){0,4}(?:\w*errors?|\w*exceptions?|tracebacks?|warnings?|stack trace"
    r"|404|500)\b|^(?:still )?getting (?:a|an|the|this) "
    r"|\b(?:it|this|that) (?:says|prints|shows|gives|raises|throws) (?:[\w-]+ ){0,3}"
    r"(?:errors?|exceptions?|\w+error)\b"
)

YOUR_CODE = re.compile(
    r"\b(?:your|that|this|the) (?:code|script|function|program|command|query|example"
    r"|solution|link)\b"
)

NO = re.compile(r"^(?:no|nope|nah|no no)$|^no,? (?:it|that|the|this|he|she|they|i|we|you)\b")

BUT = re.compile(
    r"\b(?:but|however|except|although|only that|just that|one thing)\b,? ?(?P<rest>.*)"
)

CONCEDES = re.compile(r"^(?:so |very |pretty )?(?:close|almost|nearly|better|getting there)$")
