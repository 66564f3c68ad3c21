/* What the tests of reports compare with. */
#ifndef FERRY_TESTS_REPORT_CHECK_H
#define FERRY_TESTS_REPORT_CHECK_H

#include "tests/xml_check.h"

#include <math.h>

static inline void assert_near(double value, double wanted)
{
	if (!(fabs(value - wanted) <= 1e-9 * fabs(wanted)))
		fail_msg("%.17g is not %.17g", value, wanted);
}

static inline void assert_has(const char *text, const char *part)
{
	if (!text || !strstr(text, part))
		fail_msg("\"%s\" is not in: %.3000s", part, text ? text : "nothing");
}

#endif
