/* Writes quantities as text. */
#include "base/quantity.h"

#include <math.h>

void quantity_bytes(struct str *out, int64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	int unit = 0;

	while (value >= 1024 && unit < 4) {
		value /= 1024;
		unit++;
	}
	str_printf(out, unit && value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

void quantity_ms(struct str *out, double ms)
{
	str_printf(out, ms > 0 && ms < 0.95 ? "%.2g ms" : "%.1f ms", ms);
}

void quantity_seconds(struct str *out, double seconds)
{
	int64_t s = (int64_t)(seconds + 0.5);

	if (s >= 86400)
		str_printf(out, "%lldd %lld:%02lld:%02lld", (long long)(s / 86400),
		        (long long)(s / 3600 % 24), (long long)(s / 60 % 60), (long long)(s % 60));
	else if (s >= 3600)
		str_printf(out, "%lld:%02lld:%02lld", (long long)(s / 3600), (long long)(s / 60 % 60),
		        (long long)(s % 60));
	else
		str_printf(out, "%lld:%02lld", (long long)(s / 60), (long long)(s % 60));
}

void quantity_count(struct str *out, double count)
{
	static const char *const units[] = {"", "k", "M", "B", "T"};
	int unit = 0;

	while (count >= (unit ? 999.5 : 9999.5) && unit < 4) {
		count /= 1000;
		unit++;
	}
	if (!unit)
		str_printf(out, count < 99.95 && count != floor(count) ? "%.1f" : "%.0f", count);
	else
		str_printf(out, "%.*f%s", count < 9.995 ? 2 : count < 99.95 ? 1 : 0, count, units[unit]);
}
