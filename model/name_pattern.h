/* A regular expression (PCRE2) that fits a whole name of a parameter or a module. */
#ifndef FERRY_MODEL_NAME_PATTERN_H
#define FERRY_MODEL_NAME_PATTERN_H

struct name_pattern;

/* `key` (may be NULL) and `text` stand in messages, and must outlive the pattern. ERR_INPUT: no regular
 * expression; ERR_NOMEM. */
int name_pattern_open(struct name_pattern **pattern, const char *key, const char *text);
void name_pattern_close(struct name_pattern *pattern);

/* 1, 0, or ERR_INPUT: it takes too long. */
int name_pattern_matches(const struct name_pattern *pattern, const char *name);

#endif
