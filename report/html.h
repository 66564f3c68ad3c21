/* Text for HTML that is also well-formed XML. */
#ifndef FERRY_REPORT_HTML_H
#define FERRY_REPORT_HTML_H

#include "base/str.h"

/* Appends any bytes as text or as the value of an attribute in double quotes. What is no character of XML or
 * no UTF-8 becomes U+FFFD. */
void html_add(struct str *out, const char *text);

#endif
