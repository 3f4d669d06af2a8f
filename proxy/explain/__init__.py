"""What would happen to a request, and why: ``holdfast explain``.

``subject.py`` is the request with its route; ``course.py`` runs it through the real stages, in
virtual time, for one course of chance; ``forecast.py`` does so for the extremes of chance;
``suggestions.py`` says what could be written to get another outcome, ``remedies.py`` tries which
of that helps, and ``explanation.py`` puts all of it into one value, for text and JSON alike. May
import ``simulation/``, ``config/`` (where settings were written), ``core/``, ``policy/`` and
``http/``. Nothing that serves requests imports it.
"""
