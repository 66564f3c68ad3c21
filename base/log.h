/* Messages for users. The library never prints: it passes lines to a sink that cli/ sets.
 *
 * Without a sink, lines are dropped. Thread-safe: one line at a time reaches the sink, which must not log
 * itself. Lines are cut at 2047 bytes.
 */
#ifndef FERRY_BASE_LOG_H
#define FERRY_BASE_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN };

typedef void log_sink(void *context, enum log_level level, const char *line);

void log_set_sink(log_sink *sink, void *context);
void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
