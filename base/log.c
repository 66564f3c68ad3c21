/* Passes messages to a sink that cli/ sets. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink *current;
static void *current_context;

void log_set_sink(log_sink *sink, void *context)
{
	pthread_mutex_lock(&lock);
	current = sink;
	current_context = context;
	pthread_mutex_unlock(&lock);
}

static void log_line(enum log_level level, const char *fmt, va_list ap)
{
	char line[2048]; /* no allocation: a warning about memory must get through */

	if (vsnprintf(line, sizeof(line), fmt, ap) < 0)
		return;
	pthread_mutex_lock(&lock);
	if (current)
		current(current_context, level, line);
	pthread_mutex_unlock(&lock);
}

void log_debug(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line(LOG_DEBUG, fmt, ap);
	va_end(ap);
}

void log_info(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line(LOG_INFO, fmt, ap);
	va_end(ap);
}

void log_warn(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line(LOG_WARN, fmt, ap);
	va_end(ap);
}
