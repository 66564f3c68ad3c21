/* Losses of classified texts, on the host: a row of logits and a label each. */
#ifndef FERRY_OBJECTIVE_CLASSES_H
#define FERRY_OBJECTIVE_CLASSES_H

#include <stdint.h>

/* Cross-entropy of the label; gradient (NULL: not wanted) = weight times its derivative. *is_right: the label
 * has the highest logit, the first of equal ones. */
double class_loss(
        float *gradient, int *is_right, const float *logits, int64_t count, int64_t label, double weight);

/* The mean over `count` numbers of the squares of their distances to the target. */
double regression_loss(float *gradient, const float *numbers, int64_t count, double target, double weight);

#endif
