"""python -m claw.engine.trainer --spec FILE.json"""

import sys

from claw.engine.trainer.process import main

sys.exit(main(sys.argv[1:]))
