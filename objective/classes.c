/* Losses of classified texts. */
#include "objective/classes.h"

#include <math.h>

double class_loss(
        float *gradient, int *is_right, const float *logits, int64_t count, int64_t label, double weight)
{
	double top = (double)logits[0], sum = 0;
	int64_t best = 0;

	for (int64_t i = 1; i < count; i++)
		if ((double)logits[i] > top) {
			top = (double)logits[i];
			best = i;
		}
	for (int64_t i = 0; i < count; i++)
		sum += exp((double)logits[i] - top);
	for (int64_t i = 0; i < count && gradient; i++)
		gradient[i] = (float)(weight * (exp((double)logits[i] - top) / sum - (i == label)));
	*is_right = best == label;
	return log(sum) + top - (double)logits[label];
}

double regression_loss(float *gradient, const float *numbers, int64_t count, double target, double weight)
{
	double sum = 0;

	for (int64_t i = 0; i < count; i++) {
		double far = (double)numbers[i] - target;

		sum += far * far / (double)count;
		if (gradient)
			gradient[i] = (float)(weight * 2 * far / (double)count);
	}
	return sum;
}
